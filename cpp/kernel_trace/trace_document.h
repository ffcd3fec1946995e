#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_trace/clock_tracer.h"
#include "kernel_trace/execution.h"

namespace etprof {

class JsonWriter;

/// An inference with the phase it belongs to.
struct TracedExecution {
    std::string phase;
    Execution execution;
};

/// Everything a traced run collected.
struct TraceData {
    std::vector<KernelCalls> load_calls;
    std::vector<TracedExecution> executions;
    double mark_cost_ns = 0;
};

/// Writes members of the current object: clock, kernels, executions, operators.
void write_trace(JsonWriter& json, const TraceData& data, const ClockTracer& labels);

}  // namespace etprof
