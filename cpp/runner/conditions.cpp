#include "conditions.h"

#include <sys/resource.h>

#include <algorithm>

#include "clock.h"

#if defined(__APPLE__)
#include <libkern/OSCacheControl.h>
#else
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace etprof {
namespace {

std::optional<std::uint32_t> current_core() {
#if defined(__APPLE__)
    return std::nullopt;
#else
    const int core = sched_getcpu();
    return core < 0 ? std::nullopt : std::make_optional(static_cast<std::uint32_t>(core));
#endif
}

Conditions read_counters() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    Conditions found;
    found.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt);
    found.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
    found.voluntary_switches = static_cast<std::uint64_t>(usage.ru_nvcsw);
    found.involuntary_switches = static_cast<std::uint64_t>(usage.ru_nivcsw);
    return found;
}

}  // namespace

ClockQuality measure_clock() {
    constexpr int kReadings = 1000;
    std::uint64_t tick_ns = 0;
    const auto begin = Clock::now();
    auto last = begin;
    for (int i = 0; i < kReadings; ++i) {
        const auto now = Clock::now();
        const std::uint64_t step_ns = elapsed_ns(last, now);
        if (step_ns > 0 && (tick_ns == 0 || step_ns < tick_ns)) {
            tick_ns = step_ns;
        }
        last = now;
    }
    // A clock that stood still for all readings has a tick of at least as long.
    return {std::max<std::uint64_t>(1, tick_ns),
            static_cast<double>(elapsed_ns(begin, last)) / kReadings};
}

ConditionsWatch::ConditionsWatch() : begin_(read_counters()) { begin_.first_core = current_core(); }

Conditions ConditionsWatch::read() const {
    Conditions now = read_counters();
    now.minor_faults -= begin_.minor_faults;
    now.major_faults -= begin_.major_faults;
    now.voluntary_switches -= begin_.voluntary_switches;
    now.involuntary_switches -= begin_.involuntary_switches;
    now.first_core = begin_.first_core;
    now.last_core = current_core();
    return now;
}

bool evict_from_caches(const void* data, std::size_t size_bytes) {
    // Lines are 64 bytes on every core in question, or longer; a shorter step does no harm.
    [[maybe_unused]] constexpr std::size_t kLine = 64;
    [[maybe_unused]] const char* const begin = static_cast<const char*>(data);
#if defined(__APPLE__)
    sys_dcache_flush(const_cast<void*>(data), size_bytes);
    return true;
#elif defined(__x86_64__)
    for (std::size_t offset = 0; offset < size_bytes; offset += kLine) {
        _mm_clflush(begin + offset);
    }
    _mm_mfence();
    return true;
#elif defined(__aarch64__)
    for (std::size_t offset = 0; offset < size_bytes; offset += kLine) {
        __asm__ volatile("dc civac, %0" : : "r"(begin + offset) : "memory");
    }
    __asm__ volatile("dsb ish" : : : "memory");
    return true;
#else
    return size_bytes == 0;
#endif
}

}  // namespace etprof
