#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace etprof {

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

/// Counts from its making on.
class ConditionsWatch {
 public:
    ConditionsWatch();
    /// What happened since.
    Conditions read() const;

 private:
    Conditions begin_;
};

/// Writes memory back and takes it out of the caches of all cores. False where a program cannot.
bool evict_from_caches(const void* data, std::size_t size_bytes);

}  // namespace etprof
