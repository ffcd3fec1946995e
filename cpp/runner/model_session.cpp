#include "model_session.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

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

ModelSession::Sample ModelSession::execute() {
    const auto begin = Clock::now();
    module_->set_inputs(method_.name);
    const auto bound = Clock::now();
    if (options_.cold_inputs) {
        evict_inputs();
    }
    if (module_->tracer() != nullptr) {
        module_->tracer()->open_block();
    }
    if (trace_ != nullptr) {
        trace_->begin_execution(phase_);
    }
    const auto started = Clock::now();
    const auto error = module_->execute_alone(method_.name);
    const auto ended = Clock::now();
    if (trace_ != nullptr) {
        trace_->end_execution();
    }
    module_->require_executed(error, method_.name);
    const auto reading = Clock::now();
    module_->take_outputs(method_.name);
    return {elapsed_ns(begin, bound), elapsed_ns(started, ended),
            elapsed_ns(reading, Clock::now())};
}

/// Inferences that are too short for the clock are timed together.
std::uint64_t ModelSession::execute_batch(std::uint64_t count) {
    auto error = executorch::runtime::Error::Ok;
    module_->set_inputs(method_.name);
    const auto begin = Clock::now();
    for (std::uint64_t i = 0; i < count && error == executorch::runtime::Error::Ok; ++i) {
        error = module_->execute_alone(method_.name);
    }
    const auto end = Clock::now();
    module_->require_executed(error, method_.name);
    return elapsed_ns(begin, end) / count;
}

/// Whether the inputs are what they were, after an execution: a program's plan may use their memory
/// again once they were read.
bool ModelSession::keeps_inputs() {
    const std::vector<EValue> inside = module_->exported_inputs(method_);
    for (std::size_t i = 0; i < inside.size(); ++i) {
        if (!inside[i].isTensor()) {
            continue;
        }
        const auto& given = module_->inputs[i].toTensor();
        const auto& found = inside[i].toTensor();
        if (std::memcmp(given.const_data_ptr(), found.const_data_ptr(), given.nbytes()) != 0) {
            return false;
        }
    }
    return true;
}

void ModelSession::evict_inputs() {
    // The method's own tensors: where a program plans memory for an input, it works on a copy.
    for (const EValue& value : module_->exported_inputs(method_)) {
        if (value.isTensor()) {
            const auto& tensor = value.toTensor();
            evict_from_caches(tensor.const_data_ptr(), tensor.nbytes());
        }
    }
}

void ModelSession::set_phase(const char* name) {
    phase_ = name;
    if (module_->tracer() != nullptr) {
        module_->tracer()->set_phase(name);
    }
}

void ModelSession::run() {
    clear_runtime_errors();
    measurements_.clock = measure_clock();
    set_phase("First");
    measurements_.first_inference_ns = execute().latency_ns;
    set_phase("Warmup");
    warm_up();
    choose_batch();

    set_phase("Execute");
    const auto least_ns = static_cast<std::uint64_t>(options_.min_seconds.value_or(0) * 1e9);
    const std::uint64_t guess = least_ns / std::max<std::uint64_t>(1, fastest_so_far());
    const std::uint64_t room = std::max(options_.iterations, std::min(2 * guess, kMostTouched));
    for (auto* samples :
         {&measurements_.latency_ns, &measurements_.input_ns, &measurements_.output_ns}) {
        make_room(*samples, room);
    }
    const std::vector<std::uint64_t>& latencies = measurements_.latency_ns;
    const std::uint64_t at_once = measurements_.inferences_per_sample;
    const ConditionsWatch watch;
    for (std::uint64_t total_ns = 0; latencies.size() < options_.iterations || total_ns < least_ns;
         total_ns += latencies.back() * at_once) {
        if (at_once > 1) {
            measurements_.latency_ns.push_back(execute_batch(at_once));
            continue;
        }
        const Sample sample = execute();
        measurements_.latency_ns.push_back(sample.latency_ns);
        measurements_.input_ns.push_back(sample.input_ns);
        measurements_.output_ns.push_back(sample.output_ns);
    }
    measurements_.conditions = watch.read();
    measurements_.peak_rss_bytes = peak_resident_bytes();
    measurements_.pss_bytes = proportional_bytes();
}

/// At least as many inferences and as long as was asked for, and on until they are steady.
void ModelSession::warm_up() {
    constexpr std::uint64_t kMostNs =
        10'000'000'000;  // something that never settles is measured too
    const auto least_ns = static_cast<std::uint64_t>(options_.warmup_seconds.value_or(0) * 1e9);
    std::vector<std::uint64_t>& samples = measurements_.warmup_latency_ns;
    make_room(samples, options_.warmup);
    const auto begin = Clock::now();
    for (std::uint64_t total_ns = 0; samples.size() < options_.warmup || total_ns < least_ns ||
                                     (options_.warmup_steady && total_ns < kMostNs && !is_steady());
         total_ns = elapsed_ns(begin, Clock::now())) {
        samples.push_back(execute().latency_ns);
    }
    measurements_.is_steady =
        options_.warmup_steady ? std::make_optional(is_steady()) : std::nullopt;
}

/// Whether the two last quarters of the warm-up, of at least five inferences each, have medians
/// within 2 % of each other.
bool ModelSession::is_steady() const {
    const std::vector<std::uint64_t>& samples = measurements_.warmup_latency_ns;
    const std::size_t size = samples.size() / 4;
    // Asked each time that a quarter is complete: the medians cost time between inferences.
    if (size < 5 || samples.size() % size != 0) {
        return false;
    }
    const auto median = [size](auto begin) {
        std::vector<std::uint64_t> window(begin, begin + static_cast<std::ptrdiff_t>(size));
        std::nth_element(window.begin(), window.begin() + size / 2, window.end());
        return static_cast<double>(window[size / 2]);
    };
    const auto last = samples.end() - static_cast<std::ptrdiff_t>(size);
    const double newer = median(last);
    const double older = median(last - static_cast<std::ptrdiff_t>(size));
    return std::abs(newer - older) <= 0.02 * older;
}

/// Inferences of less than a hundred ticks of the clock are timed together, unless each needs its
/// inputs given anew, which is not to be timed.
void ModelSession::choose_batch() {
    constexpr std::uint64_t kLeastTicks = 100;
    const bool is_watched = trace_ != nullptr || options_.etdump_path || options_.cold_inputs;
    const std::uint64_t least_ns = kLeastTicks * measurements_.clock.tick_ns;
    const std::uint64_t fastest_ns = std::max<std::uint64_t>(1, fastest_so_far());
    if (!is_watched && options_.warmup > 0 && fastest_ns < least_ns && keeps_inputs()) {
        measurements_.inferences_per_sample = (least_ns + fastest_ns - 1) / fastest_ns;
    }
}

std::uint64_t ModelSession::fastest_so_far() const {
    std::uint64_t fastest_ns = measurements_.first_inference_ns;
    for (const std::uint64_t latency_ns : measurements_.warmup_latency_ns) {
        fastest_ns = std::min(fastest_ns, latency_ns);
    }
    return fastest_ns;
}

std::vector<Output> ModelSession::outputs() {
    std::vector<Output> outputs;
    for (const EValue& value : module_->take_outputs(method_.name)) {
        outputs.push_back(copy_output(value));
    }
    return outputs;
}

EtdumpBytes ModelSession::take_etdump() { return module_->take_etdump(); }

}  // namespace etprof
