#pragma once

#include <time.h>

#include <cstdint>
#include <vector>

#include "kernel_trace/kernel_counters.h"

namespace etprof {

/// What happened at a moment on the measured thread.
enum class MarkKind : std::uint8_t {
    kDelegateBegin,  ///< XNNPACK was called
    kDelegateEnd,
    kBorder,         ///< XNNPACK read its clock: start of the first operator, or end of one
    kParallelBegin,  ///< work was handed to the thread pool
    kParallelEnd,
    kEventBegin,  ///< an event of ExecuTorch began; `label` names it
    kEventEnd,
    kOperatorName,  ///< XNNPACK named the next operator; `time_ns` is its reported duration
};

/// One moment. Times are of CLOCK_MONOTONIC.
struct Mark {
    std::uint64_t time_ns;
    MarkKind kind;
    std::uint32_t label;
};

/// Microkernel calls between the mark at position `mark - 1` and the one at `mark`.
struct CallsBefore {
    std::size_t mark;
    KernelCalls calls;
};

/// Everything noted between start_clock and stop_clock.
struct ClockRecord {
    std::vector<Mark> marks;
    std::vector<CallsBefore> calls;
};

/// Starts noting what the calling thread does.
void start_clock();

/// Stops noting and moves everything into `record`, whose memory is used for the next time.
void stop_clock(ClockRecord& record);

/// Notes a mark at the present time, and the microkernel calls before it.
void note(MarkKind kind, std::uint32_t label = 0);

/// Notes XNNPACK's own name and duration for an operator; takes no time stamp.
void note_operator_name(std::uint32_t label, std::uint64_t reported_ns);

/// Takes a reading of CLOCK_MONOTONIC as a border when XNNPACK made it between two operators.
void note_clock_reading(const struct timespec& time);

/// What one mark costs here, in ns, measured over many.
double measure_mark_cost_ns();

/// From the hand-over of work to the thread pool until it is done. Nested ones do not count.
class ParallelSection {
 public:
    ParallelSection();
    ~ParallelSection();
    ParallelSection(const ParallelSection&) = delete;
    ParallelSection& operator=(const ParallelSection&) = delete;
};

/// One call of XNNPACK.
class DelegateSection {
 public:
    DelegateSection();
    ~DelegateSection();
    DelegateSection(const DelegateSection&) = delete;
    DelegateSection& operator=(const DelegateSection&) = delete;
};

}  // namespace etprof
