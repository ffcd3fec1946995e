#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

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

template <typename Arguments, std::size_t... Index>
constexpr bool are_sizes(std::index_sequence<Index...>) {
    return (... && std::is_same_v<std::tuple_element_t<Index, Arguments>, std::size_t>);
}

/// Whether the first `Count` arguments are sizes.
template <std::size_t Count, typename Result, typename... Arguments>
constexpr bool begins_with_sizes(Result (*)(Arguments...)) {
    if constexpr (Count > sizeof...(Arguments)) {
        return false;
    } else {
        return are_sizes<std::tuple<Arguments...>>(std::make_index_sequence<Count>());
    }
}

}  // namespace etprof

#define ETPROF_CHECK(symbol, sizes)                                                \
    static_assert(etprof::is_passed_on(decltype(&symbol){}),                       \
                  #symbol " takes or returns what its stand-in does not pass on"); \
    static_assert(etprof::begins_with_sizes<sizes>(decltype(&symbol){}), #symbol   \
                  " does not begin with the sizes that python/etprof/backends/"    \
                  "kernel_names.py names");
