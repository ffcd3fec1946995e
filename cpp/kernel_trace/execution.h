#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_trace/operator_clock.h"

namespace etprof {

/// A piece of work between two borders: one XNNPACK operator, a part of one, or one kernel of
/// ExecuTorch outside a delegate.
struct Work {
    std::uint64_t start_ns = 0;        ///< when the first of its work was handed to the thread pool
    std::uint64_t end_ns = 0;          ///< when the last of it was done
    std::uint64_t border_ns = 0;       ///< XNNPACK's own time stamp after it
    std::uint32_t parallel_calls = 0;  ///< how often work was handed to the thread pool
    std::vector<KernelCalls> kernels;
};

/// An operator's name and the duration that XNNPACK reports for it.
struct ReportedOperator {
    std::uint32_t label;
    std::uint64_t reported_ns;  ///< whole microseconds
};

/// One step of an execution: a delegate's call, or a kernel outside delegates.
struct Step {
    bool is_delegate = false;
    std::uint32_t label = 0;                  ///< the kernel's; meaningless for a delegate
    std::uint64_t start_ns = 0;               ///< for a delegate, its first border
    std::vector<Work> works;                  ///< for a kernel, exactly one
    std::vector<ReportedOperator> operators;  ///< for a delegate
};

/// One inference.
struct Execution {
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    std::size_t mark_count = 0;
    std::vector<Step> steps;
    std::vector<KernelCalls> outside;  ///< microkernel calls outside every operator
};

/// Turns the marks of one inference into steps.
Execution read_execution(const ClockRecord& record);

/// Joins the works of a delegate into the operators that XNNPACK names; most have one work, but
/// a concatenation has one per input. `samples` are the same delegate's steps in several
/// executions; `may_have_parts` says of each operator whether it can have more than one work.
/// Returns the number of works of each operator: the split whose summed borders give the reported
/// durations in every sample. Empty when there is none.
std::vector<std::size_t> match_works(const std::vector<const Step*>& samples,
                                     const std::vector<bool>& may_have_parts);

/// Adds `more` to `total`, by microkernel.
void add_calls(std::vector<KernelCalls>& total, const std::vector<KernelCalls>& more);

}  // namespace etprof
