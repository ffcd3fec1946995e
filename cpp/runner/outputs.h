#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program_description.h"

namespace etprof {

/// One output of the last inference, copied.
struct Output {
    std::string dtype;
    std::vector<std::int32_t> shape;
    std::vector<unsigned char> bytes;
    /// NaN and infinite elements; 0 for integers.
    std::uint64_t nonfinite_count = 0;
    std::optional<std::string> path;
};

/// A finished ETDump in memory.
struct EtdumpBytes {
    struct Free {
        void operator()(void* data) const { std::free(data); }
    };
    std::unique_ptr<void, Free> data;
    std::size_t size_bytes = 0;
};

/// Counts the NaN and infinite elements of `size_bytes` bytes of `dtype`.
std::uint64_t count_nonfinite(const void* data, std::size_t size_bytes, ScalarType dtype);

}  // namespace etprof
