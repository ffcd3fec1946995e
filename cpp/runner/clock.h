#pragma once

#include <chrono>
#include <cstdint>

namespace etprof {

using Clock = std::chrono::steady_clock;

inline std::uint64_t elapsed_ns(Clock::time_point begin, Clock::time_point end) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin);
    return static_cast<std::uint64_t>(elapsed.count());
}

}  // namespace etprof
