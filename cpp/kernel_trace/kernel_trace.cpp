#include "kernel_trace/kernel_trace.h"

#include <executorch/runtime/core/event_tracer.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/runner_error.h"
#include "kernel_trace/operator_clock.h"

namespace etprof {
namespace {

/// Containers of other events and load-time events tell the clock nothing.
bool is_wanted(const char* name) {
    const std::string_view text = name == nullptr ? "" : name;
    return text == "Method::execute" || text.rfind("native_call_", 0) == 0;
}

/// Hands ExecuTorch's events to the operator clock: executions, kernels outside delegates, and the
/// names that XNNPACK gives its operators. Everything else of an event tracer is left undone.
class ClockTracer final : public executorch::runtime::EventTracer {
 public:
    using Allocator = executorch::runtime::AllocatorID;
    using DelegateId = executorch::runtime::DelegateDebugIntId;
    using Entry = executorch::runtime::EventTracerEntry;
    using Logged = executorch::runtime::Result<bool>;
    using Tensor = executorch::aten::Tensor;
    using Tensors = executorch::runtime::ArrayRef<Tensor>;

    /// The texts behind the labels of marks.
    const std::vector<std::string>& labels() const { return labels_; }

    Entry start_profiling(const char* name, executorch::runtime::ChainID,
                          executorch::runtime::DebugHandle) override {
        open_events_ = open_events_ << 1 | is_wanted(name);
        if (is_wanted(name)) {
            note(MarkKind::kEventBegin, find_label(name));
        }
        return {};
    }
    void end_profiling(Entry) override {
        if ((open_events_ & 1) != 0) {
            note(MarkKind::kEventEnd);
        }
        open_events_ >>= 1;
    }
    void log_profiling_delegate(const char* name, DelegateId, et_timestamp_t start,
                                et_timestamp_t end, const void*, size_t) override {
        note_operator_name(find_label(name == nullptr ? "" : name), end - start);
    }

    using Filter = executorch::runtime::EventTracerFilterBase;
    using Kind = executorch::runtime::LoggedEValueType;
    using Value = executorch::runtime::EValue;
    void create_event_block(const char*) override {}
    Entry start_profiling_delegate(const char*, DelegateId) override { return {}; }
    void end_profiling_delegate(Entry, const void*, size_t) override {}
    void track_allocation(Allocator, size_t) override {}
    Allocator track_allocator(const char*) override { return 0; }
    void set_delegation_intermediate_output_filter(Filter*) override {}
    Logged log_evalue(const Value&, Kind) override { return false; }
    Logged log_intermediate_output_delegate(const char*, DelegateId, const Tensor&) override {
        return false;
    }
    Logged log_intermediate_output_delegate(const char*, DelegateId, const Tensors) override {
        return false;
    }
    Logged log_intermediate_output_delegate(const char*, DelegateId, const int&) override {
        return false;
    }
    Logged log_intermediate_output_delegate(const char*, DelegateId, const bool&) override {
        return false;
    }
    Logged log_intermediate_output_delegate(const char*, DelegateId, const double&) override {
        return false;
    }

 private:
    std::uint32_t find_label(std::string_view text) {
        if (!labels_.empty() && labels_[next_label_[last_label_]] == text) {
            return last_label_ = next_label_[last_label_];
        }
        const auto [found, is_new] = label_by_text_.try_emplace(
            std::string(text), static_cast<std::uint32_t>(labels_.size()));
        if (is_new) {
            labels_.emplace_back(text);
            next_label_.push_back(0);
        }
        next_label_[last_label_] = found->second;
        return last_label_ = found->second;
    }

    /// One bit for each event that began and has not ended, the last one lowest: whether it is
    /// noted. Events nest, a few deep.
    std::uint64_t open_events_ = 0;
    std::vector<std::string> labels_;
    std::unordered_map<std::string, std::uint32_t> label_by_text_;
    /// The label after each label, the last time: operators come in the same order every time.
    std::vector<std::uint32_t> next_label_;
    std::uint32_t last_label_ = 0;
};

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
        rows.back().insert(rows.back().end(), sizes, sizes + known_kernels[some.kernel].size_count);
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
        for (const KernelInfo& kernel : known_kernels) {
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

std::unique_ptr<KernelTrace> make_kernel_trace() { return std::make_unique<InterposedTrace>(); }

}  // namespace etprof
