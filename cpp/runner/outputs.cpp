#include "outputs.h"

#include <cstring>

namespace etprof {
namespace {

/// An IEEE number is NaN or infinite when its exponent bits are all ones.
template <typename Bits>
std::uint64_t count_full_exponents(const void* data, std::size_t size_bytes, Bits exponent) {
    std::uint64_t count = 0;
    const auto* next = static_cast<const unsigned char*>(data);
    for (std::size_t left = size_bytes; left >= sizeof(Bits); left -= sizeof(Bits)) {
        Bits bits;
        std::memcpy(&bits, next, sizeof bits);
        count += (bits & exponent) == exponent ? 1 : 0;
        next += sizeof bits;
    }
    return count;
}

}  // namespace

std::uint64_t count_nonfinite(const void* data, std::size_t size_bytes, ScalarType dtype) {
    switch (dtype) {
        case ScalarType::Half:
        case ScalarType::ComplexHalf:
            return count_full_exponents<std::uint16_t>(data, size_bytes, 0x7C00);
        case ScalarType::BFloat16:
            return count_full_exponents<std::uint16_t>(data, size_bytes, 0x7F80);
        case ScalarType::Float:
        case ScalarType::ComplexFloat:
            return count_full_exponents<std::uint32_t>(data, size_bytes, 0x7F800000);
        case ScalarType::Double:
        case ScalarType::ComplexDouble:
            return count_full_exponents<std::uint64_t>(data, size_bytes, 0x7FF0000000000000);
        default:
            return 0;
    }
}

}  // namespace etprof
