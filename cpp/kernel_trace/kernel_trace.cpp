#include "kernel_trace/kernel_trace.h"

#include <utility>

#include "kernel_trace/clock_tracer.h"
#include "kernel_trace/trace_document.h"

namespace etprof {
namespace {

class InterposedTrace final : public KernelTrace {
 public:
    std::unique_ptr<executorch::runtime::EventTracer> take_event_tracer() override {
        auto tracer = std::make_unique<ClockTracer>();
        labels_ = tracer.get();
        return tracer;
    }

    void begin_load() override { take_kernel_calls(); }
    void end_load() override { data_.load_calls = take_kernel_calls(); }

    void begin_execution(const char* phase) override {
        data_.executions.push_back({phase, {}});
        start_clock();
    }

    void end_execution() override {
        stop_clock(record_);
        data_.executions.back().execution = read_execution(record_);
    }

    void write(JsonWriter& json) override {
        data_.mark_cost_ns = measure_mark_cost_ns();
        write_trace(json, data_, *labels_);
    }

 private:
    /// Belongs to the program that it was given to, which outlives this trace's use.
    const ClockTracer* labels_ = nullptr;
    ClockRecord record_;
    TraceData data_;
};

}  // namespace

bool has_kernel_trace() { return true; }

std::unique_ptr<KernelTrace> make_kernel_trace() { return std::make_unique<InterposedTrace>(); }

}  // namespace etprof
