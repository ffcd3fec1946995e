#include "model_session.h"

#include <algorithm>

#include "clock.h"
#include "loaded_module.h"
#include "memory.h"
#include "phase_tracer.h"
#include "runner_error.h"
#include "runtime_log.h"
#include "thread_pool.h"

namespace etprof {
namespace {

using executorch::runtime::EValue;
Output copy_output(const EValue& value) {
    Output output;
    const void* data = &value.payload;
    std::size_t size_bytes = 0;
    if (value.isTensor()) {
        const auto& tensor = value.toTensor();
        output.dtype = dtype_name(tensor.scalar_type());
        output.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
        data = tensor.const_data_ptr();
        size_bytes = tensor.nbytes();
        output.nonfinite_count = count_nonfinite(data, size_bytes, tensor.scalar_type());
    } else if (value.isDouble()) {
        output.dtype = "float64";
        size_bytes = sizeof(double);
        output.nonfinite_count = count_nonfinite(data, size_bytes, ScalarType::Double);
    } else if (value.isInt()) {
        output.dtype = "int64";
        size_bytes = sizeof(std::int64_t);
    } else if (value.isBool()) {
        output.dtype = "bool";
        size_bytes = sizeof(bool);
    } else {
        output.dtype = "none";
    }
    const auto* bytes = static_cast<const unsigned char*>(data);
    output.bytes.assign(bytes, bytes + size_bytes);
    return output;
}

constexpr std::uint64_t kMostTouched = 1 << 16;

/// Memory for so many samples. The first half MiB is touched now, so that a measuring loop neither
/// allocates nor faults pages in; no more, for all of it counts in the peak of the resident memory.
void make_room(std::vector<std::uint64_t>& samples, std::uint64_t count) {
    samples.reserve(count);
    samples.resize(std::min(count, kMostTouched));
    samples.clear();
}

}  // namespace

ModelSession::ModelSession(const Options& options, const MethodDescription& method,
                           KernelTrace* trace)
    : options_(options), method_(method), trace_(trace) {
    measurements_.threads_in_force = configure_thread_pool(options.threads);
    std::unique_ptr<executorch::runtime::EventTracer> tracer;
    if (trace != nullptr) {
        tracer = trace->take_event_tracer();
    }
    PhaseTracer* phases = nullptr;
    if (options.etdump_path) {
        auto recorder = std::make_unique<PhaseTracer>(std::move(tracer));
        phases = recorder.get();
        tracer = std::move(recorder);
    }
    module_ = std::make_unique<LoadedModule>(options, std::move(tracer), phases);
}

ModelSession::~ModelSession() = default;

void ModelSession::load() {
    if (trace_ == nullptr) {
        return load_program_and_method();
    }
    trace_->begin_load();
    load_program_and_method();
    trace_->end_load();
}

void ModelSession::load_program_and_method() {
    clear_runtime_errors();
    measurements_.rss_before_load_bytes = resident_bytes();
    const auto begin = Clock::now();
    module_->require_program();
    const auto program_loaded = Clock::now();
    module_->require_method(method_.name);
    const auto method_loaded = Clock::now();
    measurements_.rss_after_load_bytes = resident_bytes();
    measurements_.program_load_ns = elapsed_ns(begin, program_loaded);
    measurements_.method_load_ns = elapsed_ns(program_loaded, method_loaded);
}

void ModelSession::bind_inputs(const std::vector<Input>& inputs) {
    using executorch::aten::TensorShapeDynamism;
    module_->inputs = module_->exported_inputs(method_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const ValueDescription& value = inputs[i].value;
        if (!value.is_tensor()) {
            continue;
        }
        const auto& exported = module_->inputs[i].toTensor();
        if (value.shape != method_.inputs[i].shape &&
            exported.shape_dynamism() == TensorShapeDynamism::STATIC) {
            throw RunnerError(ExitCode::kInput,
                              "input " + std::to_string(i) + " of '" + method_.name +
                                  "' has the fixed shape " + shape_text(method_.inputs[i].shape),
                              "give it that shape, or export it with dynamic shapes");
        }
        module_->tensors.push_back(make_tensor(value, inputs[i].bytes));
        module_->inputs[i] = EValue(*module_->tensors.back());
    }
    module_->bind_outputs(method_);
}

std::uint64_t ModelSession::execute() {
    if (trace_ != nullptr) {
        trace_->begin_execution(phase_);
    }
    const auto begin = Clock::now();
    const auto result = module_->execute(method_.name, module_->inputs);
    const auto end = Clock::now();
    if (trace_ != nullptr) {
        trace_->end_execution();
    }
    module_->require_executed(result.error(), method_.name);
    return elapsed_ns(begin, end);
}

void ModelSession::set_phase(const char* name) {
    phase_ = name;
    if (module_->tracer() != nullptr) {
        module_->tracer()->set_phase(name);
    }
}

void ModelSession::run() {
    clear_runtime_errors();
    set_phase("First");
    measurements_.first_inference_ns = execute();

    set_phase("Warmup");
    make_room(measurements_.warmup_latency_ns, options_.warmup);
    for (std::uint64_t i = 0; i < options_.warmup; ++i) {
        measurements_.warmup_latency_ns.push_back(execute());
    }

    set_phase("Execute");
    const auto least_ns = static_cast<std::uint64_t>(options_.min_seconds.value_or(0) * 1e9);
    const std::uint64_t guess = least_ns / std::max<std::uint64_t>(1, fastest_so_far());
    std::vector<std::uint64_t>& samples = measurements_.latency_ns;
    make_room(samples, std::max(options_.iterations, std::min(2 * guess, kMostTouched)));
    for (std::uint64_t total_ns = 0; samples.size() < options_.iterations || total_ns < least_ns;
         total_ns += samples.back()) {
        samples.push_back(execute());
    }
    measurements_.peak_rss_bytes = peak_resident_bytes();
    measurements_.pss_bytes = proportional_bytes();
}

std::uint64_t ModelSession::fastest_so_far() const {
    std::uint64_t fastest_ns = measurements_.first_inference_ns;
    for (const std::uint64_t latency_ns : measurements_.warmup_latency_ns) {
        fastest_ns = std::min(fastest_ns, latency_ns);
    }
    return fastest_ns;
}

std::vector<Output> ModelSession::outputs() {
    const auto values = module_->get_outputs(method_.name);
    if (!values.ok()) {
        throw RunnerError(ExitCode::kExecution,
                          "the outputs of '" + method_.name + "' cannot be read (" +
                              reason_for(values.error()) + ")",
                          "export the program again");
    }
    std::vector<Output> outputs;
    for (const EValue& value : *values) {
        outputs.push_back(copy_output(value));
    }
    return outputs;
}

EtdumpBytes ModelSession::take_etdump() { return module_->take_etdump(); }

}  // namespace etprof
