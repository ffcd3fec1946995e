#pragma once

#include <time.h>

#include <cstdint>
#include <vector>

#include "kernel_trace/kernel_calls.h"

namespace etprof {

/// What happened at a moment on the measured thread; the letter stands for it in the document.
enum class MarkKind : char {
    kDelegateBegin = 'D',  ///< XNNPACK was called
    kDelegateEnd = 'd',
    kBorder = 'B',         ///< XNNPACK read its clock: start of the first operator, or end of one
    kParallelBegin = 'P',  ///< work was handed to the thread pool
    kParallelEnd = 'p',
    kEventBegin = 'E',  ///< an event of ExecuTorch began; `label` names it
    kEventEnd = 'e',
    kOperatorName = 'N',  ///< XNNPACK named the next operator; `time_ns` is its reported duration
};

/// One moment. Times are of CLOCK_MONOTONIC.
struct Mark {
    std::uint64_t time_ns;
    std::uint32_t label;
    MarkKind kind;
};

/// Starts noting what the calling thread does.
void start_clock();

/// Stops noting, and gives what was noted. Returns false when it was more than there is room for.
bool stop_clock(std::vector<Mark>& marks, std::vector<KernelCalls>& calls);

/// Notes a mark at the present time; what allocates nothing may be called from anywhere.
void note(MarkKind kind, std::uint32_t label = 0) noexcept;

/// Notes XNNPACK's own name and duration for an operator; takes no time stamp.
void note_operator_name(std::uint32_t label, std::uint64_t reported_ns) noexcept;

/// Takes a reading of CLOCK_MONOTONIC as a border when XNNPACK made it between two operators.
void note_clock_reading(const struct timespec& time) noexcept;

/// What the calling thread does from here to the end of a block; nested ones do not count.
template <MarkKind begin, MarkKind end>
class Section {
 public:
    Section() noexcept {
        if (depth++ == 0) {
            note(begin);
        }
    }
    ~Section() {
        if (depth == 1) {
            note(end);
        }
        --depth;
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

    inline static thread_local int depth = 0;
};
/// From the hand-over of work to the thread pool until it is done.
using ParallelSection = Section<MarkKind::kParallelBegin, MarkKind::kParallelEnd>;
/// One call of XNNPACK.
using DelegateSection = Section<MarkKind::kDelegateBegin, MarkKind::kDelegateEnd>;

}  // namespace etprof
