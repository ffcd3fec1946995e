#include "model_session.h"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "memory.h"
#include "phase_tracer.h"
#include "runner_error.h"
#include "runtime_log.h"
#include "thread_pool.h"

namespace etprof {
namespace {

using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Method;
using Clock = std::chrono::steady_clock;

std::uint64_t elapsed_ns(Clock::time_point begin, Clock::time_point end) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin);
    return static_cast<std::uint64_t>(elapsed.count());
}

/// What ExecuTorch said first, for it names the cause; else the error's name.
std::string reason_for(Error error) {
    const std::vector<std::string> reasons = runtime_errors();
    return reasons.empty() ? to_string(error) : reasons.front();
}

std::string list_backends() {
    std::string names;
    for (std::size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
        const auto name = executorch::runtime::get_backend_name(i);
        names += name.ok() ? (names.empty() ? "" : ", ") + std::string(*name) : "";
    }
    return names;
}

[[noreturn]] void refuse_method(Error error, const Options& options) {
    const std::string method = "'" + options.method + "' of " + options.model_path;
    const std::string reason = reason_for(error);
    if (error == Error::OperatorMissing) {
        throw RunnerError(ExitCode::kMethod,
                          method + " needs an operator that this runner lacks (" +
                              find_runtime_error("Missing operator") + ")",
                          "export it so that a delegate takes the operator, or link its kernel");
    }
    if (!find_runtime_error(" is not registered").empty()) {
        throw RunnerError(ExitCode::kMethod,
                          method + " needs a backend that this runner lacks (" + reason + ")",
                          "export it for one of: " + list_backends());
    }
    if (error == Error::InvalidProgram || error == Error::InvalidExternalData) {
        throw RunnerError(ExitCode::kModel, method + " is damaged (" + reason + ")",
                          "export it again, or copy it again if it was cut short");
    }
    throw RunnerError(ExitCode::kMethod, method + " cannot be loaded (" + reason + ")",
                      options.data_path ? "check that program and data file belong together"
                                        : "give its weights with --data if it has them apart, or "
                                          "export it with this version of ExecuTorch");
}

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

TensorPtr make_tensor(const ValueDescription& value, const AlignedBuffer& bytes) {
    return executorch::extension::make_tensor_ptr(value.shape, bytes.data(), value.dim_order, {},
                                                  value.dtype);
}

}  // namespace

/// Module, and access to what it keeps to itself.
class ModelSession::LoadedModule : public Module {
 public:
    LoadedModule(const Options& options, std::unique_ptr<executorch::runtime::EventTracer> tracer,
                 PhaseTracer* phases)
        : Module(options.model_path, options.data_path.value_or(""),
                 options.load_mode == etprof::LoadMode::kMmap ? LoadMode::Mmap : LoadMode::File,
                 std::move(tracer)),
          phases_(phases) {}

    PhaseTracer* tracer() const { return phases_; }

    /// The method's inputs before any were set: the values that the export fixed.
    std::vector<EValue> exported_inputs(const MethodDescription& method) {
        std::vector<EValue> values(method.inputs.size());
        Method& loaded = *methods_.at(method.name).method;
// Deprecated in favour of metadata, which does not have the values.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        const Error error = loaded.get_inputs(values.data(), values.size());
#pragma GCC diagnostic pop
        if (error != Error::Ok) {
            throw RunnerError(
                ExitCode::kInput,
                "the inputs of '" + method.name + "' cannot be told (" + reason_for(error) + ")",
                "export the program again");
        }
        return values;
    }

    std::vector<EValue> inputs;
    /// What the tensors among `inputs` live in.
    std::vector<TensorPtr> tensors;

 private:
    /// The event tracer, when it is there for an ETDump.
    PhaseTracer* phases_;
};

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
    const Error program_error = module_->Module::load();
    const auto program_loaded = Clock::now();
    if (program_error != Error::Ok) {
        // The program was verified before, so it is its data file that fails, if it has one.
        const std::string file = options_.data_path.value_or(options_.model_path);
        throw RunnerError(ExitCode::kModel,
                          file + " cannot be loaded (" + reason_for(program_error) + ")",
                          "export it again, or copy it again if it was cut short");
    }
    const Error method_error = module_->load_method(method_.name);
    const auto method_loaded = Clock::now();
    if (method_error != Error::Ok) {
        refuse_method(method_error, options_);
    }
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
                              "leave out --shapes, or export it with dynamic shapes");
        }
        module_->tensors.push_back(make_tensor(value, inputs[i].bytes));
        module_->inputs[i] = EValue(*module_->tensors.back());
    }
    bind_outputs();
}

/// Gives memory to the outputs for which the program planned none.
void ModelSession::bind_outputs() {
    for (std::size_t i = 0; i < method_.outputs.size(); ++i) {
        const ValueDescription& value = method_.outputs[i];
        if (!value.is_tensor() || value.is_memory_planned) {
            continue;
        }
        output_buffers_.emplace_back(value.size_bytes);
        module_->tensors.push_back(make_tensor(value, output_buffers_.back()));
        const Error error = module_->set_output(method_.name, EValue(*module_->tensors.back()), i);
        if (error != Error::Ok) {
            throw RunnerError(ExitCode::kMethod,
                              "output " + std::to_string(i) + " of '" + method_.name +
                                  "' takes no memory (" + reason_for(error) + ")",
                              "export the program with planned outputs");
        }
    }
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
    if (!result.ok()) {
        throw RunnerError(ExitCode::kExecution,
                          "'" + method_.name + "' of " + options_.model_path + " failed (" +
                              reason_for(result.error()) + ")",
                          "check that the inputs are what the model expects");
    }
    if (module_->tracer() != nullptr && !module_->tracer()->has_room()) {
        throw RunnerError(ExitCode::kOutput, "there is no room for a larger ETDump",
                          "run fewer iterations with --etdump");
    }
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
    measurements_.warmup_latency_ns.resize(options_.warmup);
    for (std::uint64_t& latency_ns : measurements_.warmup_latency_ns) {
        latency_ns = execute();
    }

    set_phase("Execute");
    const auto least_ns = static_cast<std::uint64_t>(options_.min_seconds.value_or(0) * 1e9);
    // Half a MiB at most, for it counts in the peak of the resident memory.
    constexpr std::uint64_t kMostGuessedSamples = 1 << 16;
    const std::uint64_t guess = least_ns / std::max<std::uint64_t>(1, fastest_so_far());
    std::vector<std::uint64_t>& samples = measurements_.latency_ns;
    // Touched now, so that the loop itself neither allocates nor faults pages in.
    samples.resize(std::max(options_.iterations, std::min(2 * guess, kMostGuessedSamples)));
    samples.clear();
    for (std::uint64_t total_ns = 0; samples.size() < options_.iterations || total_ns < least_ns;
         total_ns += samples.back()) {
        samples.push_back(execute());
    }
    measurements_.peak_rss_bytes = peak_resident_bytes();
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

EtdumpBytes ModelSession::take_etdump() {
    const auto finished = module_->tracer()->get_etdump_data();
    EtdumpBytes etdump{std::unique_ptr<void, EtdumpBytes::Free>(finished.buf), finished.size};
    if (etdump.data == nullptr || etdump.size_bytes == 0) {
        throw RunnerError(ExitCode::kOutput, "there is no memory for the ETDump",
                          "run fewer iterations with --etdump");
    }
    return etdump;
}

}  // namespace etprof
