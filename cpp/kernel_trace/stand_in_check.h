#pragma once

#include <cstddef>
#include <type_traits>

// Holds what headers declare against what the stand-ins pass on (stand_ins.cpp): nothing here is
// ever run.

namespace etprof {

/// Whether every argument arrives in one register or one stack slot, and there are enough of both.
template <typename Result, typename... Arguments>
constexpr bool is_passed_on(Result (*)(Arguments...)) {
#ifdef __aarch64__
    constexpr std::size_t kRegisters = 8;
#else
    constexpr std::size_t kRegisters = 6;
#endif
    constexpr std::size_t kVectors = 8;
    constexpr std::size_t kSlots = 12;
    const std::size_t numbers = (std::size_t{0} + ... + std::is_floating_point_v<Arguments>);
    const std::size_t words = sizeof...(Arguments) - numbers;
    const std::size_t spilled = (words > kRegisters ? words - kRegisters : 0) +
                                (numbers > kVectors ? numbers - kVectors : 0);
    return spilled <= kSlots && (... && (std::is_scalar_v<Arguments> && sizeof(Arguments) <= 8)) &&
           (std::is_void_v<Result> || std::is_integral_v<Result> || std::is_enum_v<Result>);
}

/// How many of the first arguments are sizes.
template <typename Result, typename... Arguments>
constexpr std::size_t count_sizes(Result (*)(Arguments...)) {
    const bool is_size[] = {std::is_same_v<Arguments, std::size_t>..., false};
    std::size_t count = 0;
    while (is_size[count]) {
        ++count;
    }
    return count;
}

}  // namespace etprof

#define ETPROF_CHECK(symbol, sizes)                                                \
    static_assert(etprof::is_passed_on(decltype(&symbol){}),                       \
                  #symbol " takes or returns what its stand-in does not pass on"); \
    static_assert(etprof::count_sizes(decltype(&symbol){}) + 1 > (sizes), #symbol  \
                  " does not begin with the sizes that python/etprof/backends/"    \
                  "kernel_names.py names");
