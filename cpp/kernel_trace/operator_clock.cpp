#include "kernel_trace/operator_clock.h"

#include <utility>

namespace etprof {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

// Only the thread that called start_clock has them; the pool's workers see false and zero.
thread_local bool is_measured = false;
thread_local int parallel_depth = 0;
thread_local int delegate_depth = 0;
/// While we read the clock ourselves, the reading is not XNNPACK's.
thread_local bool reading_clock = false;

ClockRecord current;

std::uint64_t to_ns(const struct timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * kNsPerSecond +
           static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t read_clock_ns() {
    struct timespec time;
    reading_clock = true;
    clock_gettime(CLOCK_MONOTONIC, &time);
    reading_clock = false;
    return to_ns(time);
}

void append(std::uint64_t time_ns, MarkKind kind, std::uint32_t label) {
    for (const KernelCalls& calls : take_kernel_calls()) {
        current.calls.push_back({current.marks.size(), calls});
    }
    current.marks.push_back({time_ns, kind, label});
}

}  // namespace

void start_clock() {
    take_kernel_calls();
    is_measured = true;
}

void stop_clock(ClockRecord& record) {
    is_measured = false;
    std::swap(current, record);
    current.marks.clear();
    current.calls.clear();
}

void note(MarkKind kind, std::uint32_t label) {
    if (is_measured) {
        append(read_clock_ns(), kind, label);
    }
}

void note_operator_name(std::uint32_t label, std::uint64_t reported_ns) {
    if (is_measured) {
        current.marks.push_back({reported_ns, MarkKind::kOperatorName, label});
    }
}

void note_clock_reading(const struct timespec& time) {
    if (is_measured && delegate_depth == 1 && parallel_depth == 0 && !reading_clock) {
        append(to_ns(time), MarkKind::kBorder, 0);
    }
}

double measure_mark_cost_ns() {
    constexpr int kMarks = 10'000;
    ClockRecord kept;
    start_clock();
    const std::uint64_t begin_ns = read_clock_ns();
    for (int i = 0; i < kMarks; ++i) {
        note(MarkKind::kParallelBegin);
    }
    const std::uint64_t end_ns = read_clock_ns();
    stop_clock(kept);
    return static_cast<double>(end_ns - begin_ns) / kMarks;
}

ParallelSection::ParallelSection() {
    if (parallel_depth++ == 0) {
        note(MarkKind::kParallelBegin);
    }
}

ParallelSection::~ParallelSection() {
    if (--parallel_depth == 0) {
        note(MarkKind::kParallelEnd);
    }
}

DelegateSection::DelegateSection() {
    if (delegate_depth++ == 0) {
        note(MarkKind::kDelegateBegin);
    }
}

DelegateSection::~DelegateSection() {
    if (delegate_depth == 1) {
        note(MarkKind::kDelegateEnd);
    }
    --delegate_depth;
}

}  // namespace etprof
