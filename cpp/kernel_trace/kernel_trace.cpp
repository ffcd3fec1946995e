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
    std::vector<std::vector<std::uint64_t>> rows;
    for (const KernelCalls& some : all) {
        rows.push_back({some.mark, some.kernel, some.calls});
        const auto sizes = some.sizes.begin();
        rows.back().insert(rows.back().end(), sizes,
                           sizes + known_kernels()[some.kernel].size_count);
    }
    json.field("calls", rows);
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
    json.fields("phase", execution.phase, "start_ns", start_ns, "marks", letters, "times_ns",
                times_ns, "labels", labels);
    write_calls(json, execution.calls);
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
        json.fields("kernels", kernels, "labels", tracer_->labels());
        json.key("load");
        json.begin_object();
        write_calls(json, load_calls_);
        json.end_object();
        json.objects("executions", executions_, [&json](const TracedExecution& execution) {
            write_execution(json, execution);
        });
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
