#include "memory.h"

#include <sys/resource.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <mach/mach.h>
#else
#include <fstream>
#include <string>
#endif

namespace etprof {

#if defined(__APPLE__)

std::optional<std::uint64_t> resident_bytes() {
    mach_task_basic_info info{};
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    const auto status = task_info(mach_task_self(), MACH_TASK_BASIC_INFO,
                                  reinterpret_cast<task_info_t>(&info), &count);
    if (status != KERN_SUCCESS) {
        return std::nullopt;
    }
    return info.resident_size;
}

std::uint64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss);  // bytes
}

std::optional<std::uint64_t> proportional_bytes() { return std::nullopt; }

#else

namespace {

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

}  // namespace

std::optional<std::uint64_t> proportional_bytes() {
    return find_kib("/proc/self/smaps_rollup", "Pss:");
}

std::optional<std::uint64_t> resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t total_pages = 0;
    std::uint64_t resident_pages = 0;
    if (!(statm >> total_pages >> resident_pages)) {
        return std::nullopt;
    }
    return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// The kernel's high-water mark of this program alone: ru_maxrss would begin with the peak of the
/// process that started it, which survives exec.
std::uint64_t peak_resident_bytes() {
    if (const auto peak_bytes = find_kib("/proc/self/status", "VmHWM:")) {
        return *peak_bytes;
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // KiB
}

#endif

}  // namespace etprof
