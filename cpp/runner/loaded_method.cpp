#include "loaded_method.h"

#include <executorch/runtime/backend/interface.h>

#include "messages.h"

namespace etprof {
namespace {

using executorch::extension::TensorPtr;
using executorch::runtime::Error;

constexpr char kExportAgain[] = "export it again, or copy it again if it was cut short";

constexpr char kLeaveOut[] =
    "its delegate does not take that operator: `etprof export` of the model leaves it outside";

std::string list_backends() {
    std::string names;
    for (std::size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
        const auto name = executorch::runtime::get_backend_name(i);
        names += name.ok() ? (names.empty() ? "" : ", ") + std::string(*name) : "";
    }
    return names;
}

TensorPtr make_tensor(const ValueDescription& value, const AlignedBuffer& bytes) {
    return executorch::extension::make_tensor_ptr(value.shape, bytes.data(), value.dim_order, {},
                                                  value.dtype);
}

}  // namespace

LoadedModule::LoadedModule(const Options& options,
                           std::unique_ptr<executorch::runtime::EventTracer> tracer,
                           PhaseTracer* phases, bool share_arenas)
    : Module(options.model_path, options.data_path.value_or(""),
             options.is_mapped ? LoadMode::Mmap : LoadMode::File, std::move(tracer), nullptr,
             nullptr, share_arenas),
      options_(options),
      phases_(phases) {}

void LoadedModule::require_program() {
    const Error error = Module::load();
    if (error != Error::Ok) {
        // The program was verified before, so it is its data file that fails, if it has one.
        const std::string file = options_.data_path.value_or(options_.model_path);
        throw RunnerError(ExitCode::kModel, file + " cannot be loaded (" + reason_for(error) + ")",
                          kExportAgain);
    }
}

void LoadedModule::require_method(const std::string& name) {
    const Error error = load_method(name);
    if (error == Error::Ok) {
        return;
    }
    const std::string method = "'" + name + "' of " + options_.model_path;
    const std::string reason = reason_for(error);
    if (error == Error::OperatorMissing) {
        const std::string named = find_runtime_error("Missing operator");
        throw RunnerError(
            ExitCode::kMethod, method + " needs an operator that this runner lacks (" + named + ")",
            named.find("] llama::") != std::string::npos
                ? ETPROF_LLM_WAY_OUT
                : "export it so that a delegate takes the operator, or link its kernel");
    }
    if (!find_runtime_error(" is not registered").empty()) {
        throw RunnerError(ExitCode::kMethod,
                          method + " needs a backend that this runner lacks (" + reason + ")",
                          "export it for one of: " + list_backends());
    }
    if (error == Error::InvalidProgram || error == Error::InvalidExternalData) {
        throw RunnerError(ExitCode::kModel, method + " is damaged (" + reason + ")", kExportAgain);
    }
    // A delegate that was read and takes an operator not has nothing to do with files.
    const bool is_refused = !find_runtime_error("xnn_status_").empty();
    throw RunnerError(ExitCode::kMethod, method + " cannot be loaded (" + reason + ")",
                      is_refused ? kLeaveOut
                      : options_.data_path
                          ? "check that program and data file belong together"
                          : "give its weights with --data if it has them apart, or "
                            "export it with this version of ExecuTorch");
}

void LoadedModule::require_executed(Error error, const std::string& method) const {
    if (error != Error::Ok) {
        const std::string place = find_runtime_error("failed at instruction");
        throw RunnerError(ExitCode::kExecution,
                          "'" + method + "' of " + options_.model_path + " failed (" +
                              reason_for(error) + (place.empty() ? "" : "; " + place) + ")",
                          place.empty() ? "check that the inputs are what the model expects"
                                        : "a kernel refuses what it is given: check the inputs, or "
                                          "ask `etprof export` of the model which operator it is");
    }
    if (phases_ != nullptr && !phases_->has_room()) {
        throw RunnerError(ExitCode::kOutput, "there is no room for a larger ETDump",
                          "run fewer iterations with --etdump");
    }
}

EtdumpBytes LoadedModule::take_etdump() {
    const auto finished = phases_->get_etdump_data();
    EtdumpBytes etdump{std::unique_ptr<void, Free>(finished.buf), finished.size};
    if (etdump.data == nullptr || etdump.size_bytes == 0) {
        throw RunnerError(ExitCode::kOutput, "there is no memory for the ETDump",
                          "run fewer iterations with --etdump");
    }
    return etdump;
}

LoadedMethod::LoadedMethod(LoadedModule& module, const MethodDescription& description)
    : module_(module), description_(description), method_(module.method(description.name)) {
    inputs_ = inner_inputs();
    tensors_.resize(inputs_.size());
    for (std::size_t i = 0; i < description.outputs.size(); ++i) {
        const ValueDescription& value = description.outputs[i];
        if (!value.is_tensor() || value.is_memory_planned) {
            continue;
        }
        output_buffers_.emplace_back(value.size_bytes);
        tensors_.push_back(make_tensor(value, output_buffers_.back()));
        const Error error = module.set_output(description.name, EValue(*tensors_.back()), i);
        if (error != Error::Ok) {
            throw RunnerError(ExitCode::kMethod,
                              "output " + std::to_string(i) + " of '" + description.name +
                                  "' takes no memory (" + reason_for(error) + ")",
                              "export the program with planned outputs");
        }
    }
}

bool LoadedMethod::is_fixed(std::size_t input) const {
    return inputs_[input].toTensor().shape_dynamism() ==
           executorch::aten::TensorShapeDynamism::STATIC;
}

void LoadedMethod::bind(std::size_t index, const ValueDescription& value,
                        const AlignedBuffer& bytes) {
    tensors_[index] = make_tensor(value, bytes);
    inputs_[index] = EValue(*tensors_[index]);
}

void LoadedMethod::set_inputs() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const Error error = method_.set_input(inputs_[i], i);
        if (error != Error::Ok) {
            require_executed(error);
        }
    }
}

const std::vector<LoadedMethod::EValue>& LoadedMethod::take_outputs() {
    outputs_.resize(method_.outputs_size());
    require_executed(method_.get_outputs(outputs_.data(), outputs_.size()));
    return outputs_;
}

std::vector<LoadedMethod::EValue> LoadedMethod::inner_inputs() const {
    std::vector<EValue> values(description_.inputs.size());
// Deprecated in favour of metadata, which does not have the values.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    const Error error = method_.get_inputs(values.data(), values.size());
#pragma GCC diagnostic pop
    if (error != Error::Ok) {
        throw RunnerError(
            ExitCode::kInput,
            "the inputs of '" + description_.name + "' cannot be told (" + reason_for(error) + ")",
            "export the program again");
    }
    return values;
}

}  // namespace etprof
