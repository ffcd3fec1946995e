#include "kernel_trace/operator_clock.h"

namespace etprof {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
/// In one inference: three an operator and one a name, so enough for sixty thousand operators.
constexpr std::size_t kMostMarks = 1 << 18;

// Only the thread that called start_clock has it; the pool's workers see false.
thread_local bool is_measured = false;
/// While we read the clock ourselves, the reading is not XNNPACK's.
thread_local bool reading_clock = false;

/// Never grows beyond what start_clock reserves: a mark may be made below frames of C.
std::vector<Mark> current;
bool is_full = false;

std::uint64_t to_ns(const struct timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * kNsPerSecond +
           static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t read_clock_ns() noexcept {
    struct timespec time;
    reading_clock = true;
    clock_gettime(CLOCK_MONOTONIC, &time);
    reading_clock = false;
    return to_ns(time);
}

void append(std::uint64_t time_ns, MarkKind kind, std::uint32_t label) noexcept {
    if (current.size() == kMostMarks) {
        is_full = true;
        return;
    }
    current.push_back({time_ns, label, kind});
    set_mark_count(current.size());
}

}  // namespace

void start_clock() {
    std::vector<KernelCalls> of_nobody;
    take_kernel_calls(of_nobody);
    current.reserve(kMostMarks);
    current.clear();
    is_full = false;
    is_measured = true;
}

bool stop_clock(std::vector<Mark>& marks, std::vector<KernelCalls>& calls) {
    is_measured = false;
    marks = current;
    return take_kernel_calls(calls) && !is_full;
}

void note(MarkKind kind, std::uint32_t label) noexcept {
    if (is_measured) {
        append(read_clock_ns(), kind, label);
    }
}

void note_operator_name(std::uint32_t label, std::uint64_t reported_ns) noexcept {
    if (is_measured) {
        append(reported_ns, MarkKind::kOperatorName, label);
    }
}

void note_clock_reading(const struct timespec& time) noexcept {
    const bool is_between = DelegateSection::depth == 1 && ParallelSection::depth == 0;
    if (is_measured && is_between && !reading_clock) {
        append(to_ns(time), MarkKind::kBorder, 0);
    }
}

}  // namespace etprof
