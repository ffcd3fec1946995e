#include "kernel_trace/kernel_trace.h"

#include <string>
#include <utility>
#include <vector>

#include "json_writer.h"
#include "kernel_trace/clock_tracer.h"
#include "kernel_trace/operator_clock.h"
#include "runner_error.h"

namespace etprof {
namespace {

/// An inference with the phase it belongs to.
struct TracedExecution {
    const char* phase;
    std::vector<Mark> marks;
    std::vector<KernelCalls> calls;
};

void require_complete(bool is_complete) {
    if (!is_complete) {
        throw RunnerError(ExitCode::kUsage,
                          "the program has more operators than --kernel-trace has room for",
                          "run it without");
    }
}

/// Each as numbers: marks before them, microkernel, calls, sizes.
void write_calls(JsonWriter& json, const std::vector<KernelCalls>& all) {
    json.key("calls");
    json.begin_array();
    for (const KernelCalls& some : all) {
        json.begin_array();
        json.value(some.mark);
        json.value(some.kernel);
        json.value(some.calls);
        for (std::size_t i = 0; i < known_kernels()[some.kernel].size_count; ++i) {
            json.value(some.sizes[i]);
        }
        json.end_array();
    }
    json.end_array();
}

/// The marks column by column: a letter each, times from the first one, labels of those with one.
void write_execution(JsonWriter& json, const TracedExecution& execution) {
    const std::uint64_t start_ns = execution.marks.empty() ? 0 : execution.marks.front().time_ns;
    std::string letters;
    std::vector<std::uint64_t> times_ns;
    std::vector<std::uint32_t> labels;
    for (const Mark& mark : execution.marks) {
        const bool is_name = mark.kind == MarkKind::kOperatorName;
        letters.push_back(static_cast<char>(mark.kind));
        times_ns.push_back(is_name ? mark.time_ns : mark.time_ns - start_ns);
        if (is_name || mark.kind == MarkKind::kEventBegin) {
            labels.push_back(mark.label);
        }
    }
    json.begin_object();
    json.field("phase", execution.phase);
    json.field("start_ns", start_ns);
    json.field("marks", letters);
    json.field("times_ns", times_ns);
    json.field("labels", labels);
    write_calls(json, execution.calls);
    json.end_object();
}

class InterposedTrace final : public KernelTrace {
 public:
    std::unique_ptr<executorch::runtime::EventTracer> take_event_tracer() override {
        auto tracer = std::make_unique<ClockTracer>();
        tracer_ = tracer.get();
        return tracer;
    }

    void begin_load() override { take_kernel_calls(load_calls_); }
    void end_load() override { require_complete(take_kernel_calls(load_calls_)); }

    void begin_execution(const char* phase) override {
        executions_.push_back({phase, {}, {}});
        start_clock();
    }

    void end_execution() override {
        TracedExecution& execution = executions_.back();
        require_complete(stop_clock(execution.marks, execution.calls));
    }

    void write(JsonWriter& json) override {
        std::vector<std::string> kernels;
        for (const KernelInfo& kernel : known_kernels()) {
            kernels.emplace_back(kernel.name);
        }
        json.field("kernels", kernels);
        json.field("labels", tracer_->labels());
        json.key("load");
        json.begin_object();
        write_calls(json, load_calls_);
        json.end_object();
        json.key("executions");
        json.begin_array();
        for (const TracedExecution& execution : executions_) {
            write_execution(json, execution);
        }
        json.end_array();
    }

 private:
    /// Belongs to the program that it was given to, which outlives this trace's use.
    const ClockTracer* tracer_ = nullptr;
    std::vector<KernelCalls> load_calls_;
    std::vector<TracedExecution> executions_;
};

}  // namespace

bool has_kernel_trace() { return true; }

std::unique_ptr<KernelTrace> make_kernel_trace() { return std::make_unique<InterposedTrace>(); }

}  // namespace etprof
