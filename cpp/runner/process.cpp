#include "process.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <type_traits>

#include "base/runner_error.h"

#if defined(__APPLE__)
#include <libkern/OSCacheControl.h>
#include <mach/mach.h>
#include <sys/sysctl.h>
#else
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if __has_include(<executorch/extension/threadpool/threadpool.h>)
#include <executorch/extension/threadpool/threadpool.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // it calls its own resetting so
#else
// ExecuTorch exports these from its thread pool library, but the SDK does not ship their header.
namespace executorch::extension::threadpool {

class ThreadPool {
 public:
    std::size_t get_thread_count() const;
    bool _unsafe_reset_threadpool(std::uint32_t num_threads);
};

ThreadPool* get_threadpool();

}  // namespace executorch::extension::threadpool
#endif

namespace etprof {
namespace {

using namespace executorch::extension::threadpool;

// A source build has the header: what changed there does not compile, as it would link elsewhere.
template <auto function, typename Type>
constexpr bool is_declared = std::is_same_v<decltype(function), Type>;
static_assert(is_declared<&get_threadpool, ThreadPool* (*)()>);
static_assert(is_declared<&ThreadPool::get_thread_count, std::size_t (ThreadPool::*)() const>);
static_assert(
    is_declared<&ThreadPool::_unsafe_reset_threadpool, bool (ThreadPool::*)(std::uint32_t)>);

std::optional<std::uint32_t> current_core() {
#if defined(__APPLE__)
    return std::nullopt;
#else
    const int core = sched_getcpu();
    return core < 0 ? std::nullopt : std::make_optional(static_cast<std::uint32_t>(core));
#endif
}

rusage read_usage() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage;
}

#if !defined(__APPLE__)
/// The number of KiB after `label` in one of the process's files, in bytes.
std::optional<std::uint64_t> find_kib(const char* path, const std::string& label) {
    std::ifstream file(path);
    std::string word;
    while (file >> word) {
        std::uint64_t kib = 0;
        if (word == label && file >> kib) {
            return kib * 1024;
        }
    }
    return std::nullopt;
}
#endif

/// The pool's library does not survive a thread that cannot be started, so they are tried before.
bool can_start(std::size_t count) {
    std::mutex gate;
    std::unique_lock<std::mutex> closed(gate);
    std::vector<std::thread> trial;
    bool started = true;
    try {
        while (trial.size() < count) {
            trial.emplace_back([&gate] { const std::lock_guard<std::mutex> passed(gate); });
        }
    } catch (const std::system_error&) {
        started = false;
    }
    closed.unlock();
    for (std::thread& thread : trial) {
        thread.join();
    }
    return started;
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

Conditions conditions_since(const Conditions& begin) {
    const rusage usage = read_usage();
    return {static_cast<std::uint64_t>(usage.ru_minflt) - begin.minor_faults,
            static_cast<std::uint64_t>(usage.ru_majflt) - begin.major_faults,
            static_cast<std::uint64_t>(usage.ru_nvcsw) - begin.voluntary_switches,
            static_cast<std::uint64_t>(usage.ru_nivcsw) - begin.involuntary_switches,
            begin.last_core,
            current_core()};
}

void evict_from_caches(const void* data, std::size_t size_bytes) {
#if defined(__APPLE__)
    sys_dcache_flush(const_cast<void*>(data), size_bytes);
#else
    // Lines are 64 bytes on every core in question, or longer; a shorter step does no harm.
    constexpr std::size_t kLine = 64;
    for (std::size_t offset = 0; offset < size_bytes; offset += kLine) {
        [[maybe_unused]] const char* const line = static_cast<const char*>(data) + offset;
#if defined(__x86_64__)
        _mm_clflush(line);
#elif defined(__aarch64__)
        __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
#endif
    }
#if defined(__x86_64__)
    _mm_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dsb ish" : : : "memory");
#endif
#endif
}

#if defined(__APPLE__)

std::optional<std::uint64_t> resident_bytes() {
    mach_task_basic_info info{};
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    const auto status = task_info(mach_task_self(), MACH_TASK_BASIC_INFO,
                                  reinterpret_cast<task_info_t>(&info), &count);
    return status == KERN_SUCCESS ? std::optional<std::uint64_t>(info.resident_size) : std::nullopt;
}

std::uint64_t peak_resident_bytes() {
    return static_cast<std::uint64_t>(read_usage().ru_maxrss);  // bytes
}

std::optional<std::uint64_t> proportional_bytes() { return std::nullopt; }

std::vector<std::string> describe_cpu() {
    std::string features;
    for (const std::string name :
         {"AdvSIMD", "arm.FEAT_FP16", "arm.FEAT_DotProd", "arm.FEAT_I8MM", "arm.FEAT_BF16",
          "arm.FEAT_SME", "arm.FEAT_SME2", "arm.FEAT_SME2p1"}) {
        int present = 0;
        std::size_t size = sizeof present;
        const std::string full_name = "hw.optional." + name;
        sysctlbyname(full_name.c_str(), &present, &size, nullptr, 0);
        features += present != 0 ? " " + full_name : "";
    }
    char model[256] = "unknown";
    std::size_t size = sizeof model - 1;
    sysctlbyname("machdep.cpu.brand_string", model, &size, nullptr, 0);
    return {std::string("model name: ") + model, "Features:" + features};
}

#else

std::optional<std::uint64_t> resident_bytes() { return find_kib("/proc/self/status", "VmRSS:"); }

/// Of this program alone: ru_maxrss begins with the peak of what started it, which survives exec.
std::uint64_t peak_resident_bytes() {
    const auto peak_bytes = find_kib("/proc/self/status", "VmHWM:");
    return peak_bytes ? *peak_bytes : static_cast<std::uint64_t>(read_usage().ru_maxrss) * 1024;
}

std::optional<std::uint64_t> proportional_bytes() {
    return find_kib("/proc/self/smaps_rollup", "Pss:");
}

std::vector<std::string> describe_cpu() {
    std::ifstream file("/proc/cpuinfo", std::ios::binary);
    std::set<std::string> wanted{"model name", "flags", "Features", "CPU implementer", "CPU part"};
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
        if (wanted.erase(line.substr(0, line.find_first_of("\t:"))) != 0) {
            lines.push_back(line);
        }
    }
    return lines;
}

#endif

std::size_t configure_thread_pool(std::optional<std::uint64_t> threads) {
    // ExecuTorch makes a pool for all cores first, whatever is asked for then.
    const std::uint64_t most =
        std::max<std::uint64_t>(threads.value_or(1), std::thread::hardware_concurrency());
    if (!can_start(most - 1)) {
        throw RunnerError(ExitCode::kUsage,
                          std::to_string(most) + " threads cannot be started here",
                          "ask for fewer with --threads, or raise the limit of processes");
    }
    ThreadPool* const pool = get_threadpool();
    if (pool == nullptr) {
        throw RunnerError(ExitCode::kInternal, "ExecuTorch has no thread pool here",
                          "check that this process may start threads");
    }
    if (threads && !pool->_unsafe_reset_threadpool(static_cast<std::uint32_t>(*threads))) {
        throw RunnerError(ExitCode::kUsage,
                          "--threads " + std::to_string(*threads) + " cannot be given here",
                          "ask for fewer threads");
    }
    return pool->get_thread_count();
}

}  // namespace etprof
