#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace etprof {

using Clock = std::chrono::steady_clock;

inline std::uint64_t elapsed_ns(Clock::time_point begin, Clock::time_point end) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin);
    return static_cast<std::uint64_t>(elapsed.count());
}

/// What the steady clock can tell apart, and what asking it takes; both in ns.
struct ClockQuality {
    /// The least difference between two readings that are not the same.
    std::uint64_t tick_ns = 0;
    /// The mean over a thousand readings.
    double reading_ns = 0;
};

ClockQuality measure_clock();

/// What the system did to this process between begin and end of the timed iterations.
struct Conditions {
    std::uint64_t minor_faults = 0;
    std::uint64_t major_faults = 0;
    std::uint64_t voluntary_switches = 0;
    std::uint64_t involuntary_switches = 0;
    /// Number of the core that the calling thread was on; missing where the system does not tell.
    std::optional<std::uint32_t> first_core;
    std::optional<std::uint32_t> last_core;
};

/// What happened since `begin`; to the process so far, and then `last_core` is now's, without it.
Conditions conditions_since(const Conditions& begin = {});

/// Writes memory back and takes it out of the caches of all cores, where a program can.
void evict_from_caches(const void* data, std::size_t size_bytes);

/// Resident memory of this process now; missing where the system does not tell.
std::optional<std::uint64_t> resident_bytes();
/// The most it ever was, since this program began.
std::uint64_t peak_resident_bytes();
/// Resident memory now with shared pages counted in part; missing where the system does not tell.
std::optional<std::uint64_t> proportional_bytes();

/// The first lines of Linux's /proc/cpuinfo that tell model and features. On a Mac, lines of the
/// same form, with the features' names that sysctl knows.
std::vector<std::string> describe_cpu();

/// Sets the size of ExecuTorch's thread pool, unless missing, and returns the size in force. Throws
/// RunnerError (kUsage) when so many threads cannot be had.
std::size_t configure_thread_pool(std::optional<std::uint64_t> threads);

}  // namespace etprof
