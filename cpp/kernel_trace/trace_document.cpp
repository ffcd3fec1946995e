#include "kernel_trace/trace_document.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "json_writer.h"

namespace etprof {
namespace {

/// An operator over all executions; positions without a value belong to executions whose operators
/// are others.
struct OperatorSeries {
    std::uint32_t label = 0;
    std::optional<std::size_t> delegate;
    std::vector<std::optional<std::uint64_t>> start_ns;
    std::vector<std::optional<std::uint64_t>> duration_ns;
    std::map<std::uint32_t, std::vector<std::uint64_t>> kernels;
};

bool same_steps(const Execution& a, const Execution& b) {
    return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                      [](const Step& x, const Step& y) {
                          return x.is_delegate == y.is_delegate && x.label == y.label &&
                                 x.works.size() == y.works.size() &&
                                 x.operators.size() == y.operators.size();
                      });
}

Work join(const std::vector<Work>& works, std::size_t begin, std::size_t count) {
    Work joined = works[begin];
    for (std::size_t i = begin + 1; i < begin + count; ++i) {
        joined.start_ns = joined.parallel_calls == 0 ? works[i].start_ns : joined.start_ns;
        joined.end_ns = std::max(joined.end_ns, works[i].end_ns);
        joined.parallel_calls += works[i].parallel_calls;
        add_calls(joined.kernels, works[i].kernels);
    }
    return joined;
}

/// Follows each operator through the executions that have the same steps as the last one.
class SeriesBuilder {
 public:
    SeriesBuilder(const TraceData& data, const ClockTracer& labels) : data_(data), labels_(labels) {
        for (const TracedExecution& traced : data.executions) {
            aligned_.push_back(same_steps(traced.execution, data.executions.back().execution));
        }
    }

    const std::vector<bool>& aligned() const { return aligned_; }
    bool all_named() const { return all_named_; }

    std::vector<OperatorSeries> build() {
        if (data_.executions.empty()) {
            return {};
        }
        const Execution& pattern = data_.executions.back().execution;
        std::size_t delegates = 0;
        for (std::size_t step = 0; step < pattern.steps.size(); ++step) {
            if (pattern.steps[step].is_delegate) {
                add_delegate(step, delegates++);
            } else {
                add_series({step, 0, 1, std::nullopt}, pattern.steps[step].label);
            }
        }
        return std::move(series_);
    }

 private:
    void add_delegate(std::size_t step, std::size_t delegate) {
        std::vector<const Step*> samples;
        for (std::size_t i = 0; i < data_.executions.size(); ++i) {
            if (aligned_[i]) {
                samples.push_back(&data_.executions[i].execution.steps[step]);
            }
        }
        const std::vector<std::size_t> counts = match_works(samples, find_copies(*samples[0]));
        all_named_ = all_named_ && (!counts.empty() || samples.front()->works.empty());
        std::size_t begin = 0;
        for (std::size_t o = 0; o < counts.size(); ++o) {
            add_series({step, begin, counts[o], delegate}, samples.front()->operators[o].label);
            begin += counts[o];
        }
    }

    /// XNNPACK makes several operators of one graph node only for concatenation and splitting
    /// (src/subgraph/{concatenate,even-split}.c), and those are copies.
    std::vector<bool> find_copies(const Step& step) const {
        std::vector<bool> copies;
        for (const ReportedOperator& reported : step.operators) {
            copies.push_back(labels_.label_text(reported.label).rfind("Copy ", 0) == 0);
        }
        return copies;
    }

    /// Where an operator stands in every execution.
    struct Place {
        std::size_t step;
        std::size_t first_work;
        std::size_t work_count;
        std::optional<std::size_t> delegate;
    };

    void add_series(const Place& place, std::uint32_t label) {
        OperatorSeries series;
        series.label = label;
        series.delegate = place.delegate;
        for (std::size_t i = 0; i < data_.executions.size(); ++i) {
            const Execution& execution = data_.executions[i].execution;
            if (!aligned_[i]) {
                series.start_ns.emplace_back();
                series.duration_ns.emplace_back();
                continue;
            }
            const std::vector<Work>& works = execution.steps[place.step].works;
            const Work work = join(works, place.first_work, place.work_count);
            series.start_ns.emplace_back(work.start_ns - execution.start_ns);
            series.duration_ns.emplace_back(work.end_ns - work.start_ns);
            for (const KernelCalls& calls : work.kernels) {
                auto& per_execution = series.kernels[calls.kernel];
                per_execution.resize(data_.executions.size());
                per_execution[i] = calls.calls;
            }
        }
        series_.push_back(std::move(series));
    }

    const TraceData& data_;
    const ClockTracer& labels_;
    std::vector<bool> aligned_;
    std::vector<OperatorSeries> series_;
    bool all_named_ = true;
};

std::vector<KernelCalls> all_calls(const Execution& execution) {
    std::vector<KernelCalls> total = execution.outside;
    for (const Step& step : execution.steps) {
        for (const Work& work : step.works) {
            add_calls(total, work.kernels);
        }
    }
    return total;
}

std::optional<std::string_view> text_or_null(std::string_view text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

void write_clock(JsonWriter& json, const TraceData& data) {
    std::size_t marks = 0;
    for (const TracedExecution& traced : data.executions) {
        marks += traced.execution.mark_count;
    }
    json.key("clock");
    json.begin_object();
    json.field("mark_cost_ns", data.mark_cost_ns);
    json.field("marks", marks);
    json.end_object();
}

void write_kernel(JsonWriter& json, std::uint32_t kernel, std::uint64_t load_calls,
                  const std::vector<std::uint64_t>& calls) {
    const KernelInfo& info = known_kernels()[kernel];
    json.begin_object();
    json.field("name", info.name);
    json.field("level", text_or_null(info.level));
    json.field("load_calls", load_calls);
    json.field("execution_calls", calls);
    json.end_object();
}

void write_kernels(JsonWriter& json, const TraceData& data) {
    std::map<std::uint32_t, std::vector<std::uint64_t>> by_kernel;
    std::map<std::uint32_t, std::uint64_t> at_load;
    for (const KernelCalls& calls : data.load_calls) {
        at_load[calls.kernel] = calls.calls;
        by_kernel[calls.kernel].resize(data.executions.size());
    }
    for (std::size_t i = 0; i < data.executions.size(); ++i) {
        for (const KernelCalls& calls : all_calls(data.executions[i].execution)) {
            auto& per_execution = by_kernel[calls.kernel];
            per_execution.resize(data.executions.size());
            per_execution[i] = calls.calls;
        }
    }
    json.key("kernels");
    json.begin_array();
    for (const auto& [kernel, calls] : by_kernel) {
        write_kernel(json, kernel, at_load[kernel], calls);
    }
    json.end_array();
}

void write_calls(JsonWriter& json, const std::vector<KernelCalls>& calls) {
    json.begin_array();
    for (const KernelCalls& entry : calls) {
        json.begin_object();
        json.field("name", known_kernels()[entry.kernel].name);
        json.field("calls", entry.calls);
        json.end_object();
    }
    json.end_array();
}

void write_executions(JsonWriter& json, const TraceData& data, const std::vector<bool>& aligned) {
    json.key("executions");
    json.begin_array();
    for (std::size_t i = 0; i < data.executions.size(); ++i) {
        const Execution& execution = data.executions[i].execution;
        json.begin_object();
        json.field("phase", data.executions[i].phase);
        json.field("start_ns", execution.start_ns);
        json.field("duration_ns", execution.end_ns - execution.start_ns);
        json.field("aligned", static_cast<bool>(aligned[i]));
        json.key("kernels_outside_operators");
        write_calls(json, execution.outside);
        json.end_object();
    }
    json.end_array();
}

void write_operator(JsonWriter& json, const OperatorSeries& series, const ClockTracer& labels) {
    json.begin_object();
    json.field("name", labels.label_text(series.label));
    json.field("delegate", series.delegate);
    json.field("start_ns", series.start_ns);
    json.field("duration_ns", series.duration_ns);
    json.key("kernels");
    json.begin_array();
    for (const auto& [kernel, calls] : series.kernels) {
        json.begin_object();
        json.field("name", known_kernels()[kernel].name);
        json.field("execution_calls", calls);
        json.end_object();
    }
    json.end_array();
    json.end_object();
}

}  // namespace

void write_trace(JsonWriter& json, const TraceData& data, const ClockTracer& labels) {
    SeriesBuilder builder(data, labels);
    const std::vector<OperatorSeries> operators = builder.build();
    write_clock(json, data);
    write_kernels(json, data);
    write_executions(json, data, builder.aligned());
    json.field("all_operators_named", builder.all_named());
    json.key("operators");
    json.begin_array();
    for (const OperatorSeries& series : operators) {
        write_operator(json, series, labels);
    }
    json.end_array();
}

}  // namespace etprof
