#include "loaded_module.h"

#include <executorch/runtime/backend/interface.h>

#include "runner_error.h"
#include "runtime_log.h"

namespace etprof {
namespace {

using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::Method;

std::string list_backends() {
    std::string names;
    for (std::size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
        const auto name = executorch::runtime::get_backend_name(i);
        names += name.ok() ? (names.empty() ? "" : ", ") + std::string(*name) : "";
    }
    return names;
}

[[noreturn]] void refuse_method(Error error, const std::string& name, const Options& options) {
    const std::string method = "'" + name + "' of " + options.model_path;
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

}  // namespace

std::string reason_for(Error error) {
    const std::vector<std::string> reasons = runtime_errors();
    return reasons.empty() ? to_string(error) : reasons.front();
}

TensorPtr make_tensor(const ValueDescription& value, const AlignedBuffer& bytes) {
    return executorch::extension::make_tensor_ptr(value.shape, bytes.data(), value.dim_order, {},
                                                  value.dtype);
}

LoadedModule::LoadedModule(const Options& options,
                           std::unique_ptr<executorch::runtime::EventTracer> tracer,
                           PhaseTracer* phases, bool share_arenas)
    : Module(options.model_path, options.data_path.value_or(""),
             options.load_mode == etprof::LoadMode::kMmap ? LoadMode::Mmap : LoadMode::File,
             std::move(tracer), nullptr, nullptr, share_arenas),
      options_(options),
      phases_(phases) {}

void LoadedModule::require_program() {
    const Error error = Module::load();
    if (error != Error::Ok) {
        // The program was verified before, so it is its data file that fails, if it has one.
        const std::string file = options_.data_path.value_or(options_.model_path);
        throw RunnerError(ExitCode::kModel, file + " cannot be loaded (" + reason_for(error) + ")",
                          "export it again, or copy it again if it was cut short");
    }
}

void LoadedModule::require_method(const std::string& name) {
    const Error error = load_method(name);
    if (error != Error::Ok) {
        refuse_method(error, name, options_);
    }
}

std::vector<LoadedModule::EValue> LoadedModule::exported_inputs(const MethodDescription& method) {
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

void LoadedModule::bind_outputs(const MethodDescription& method) {
    for (std::size_t i = 0; i < method.outputs.size(); ++i) {
        const ValueDescription& value = method.outputs[i];
        if (!value.is_tensor() || value.is_memory_planned) {
            continue;
        }
        output_buffers_.emplace_back(value.size_bytes);
        tensors.push_back(make_tensor(value, output_buffers_.back()));
        const Error error = set_output(method.name, EValue(*tensors.back()), i);
        if (error != Error::Ok) {
            throw RunnerError(ExitCode::kMethod,
                              "output " + std::to_string(i) + " of '" + method.name +
                                  "' takes no memory (" + reason_for(error) + ")",
                              "export the program with planned outputs");
        }
    }
}

void LoadedModule::set_inputs(const std::string& method) {
    auto& loaded = *methods_.at(method).method;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Error error = loaded.set_input(inputs[i], i);
        if (error != Error::Ok) {
            require_executed(error, method);
        }
    }
}

const std::vector<LoadedModule::EValue>& LoadedModule::take_outputs(const std::string& method) {
    auto& loaded = *methods_.at(method).method;
    outputs_.resize(loaded.outputs_size());
    require_executed(loaded.get_outputs(outputs_.data(), outputs_.size()), method);
    return outputs_;
}

void LoadedModule::require_executed(Error error, const std::string& method) const {
    if (error != Error::Ok) {
        throw RunnerError(
            ExitCode::kExecution,
            "'" + method + "' of " + options_.model_path + " failed (" + reason_for(error) + ")",
            "check that the inputs are what the model expects");
    }
    if (phases_ != nullptr && !phases_->has_room()) {
        throw RunnerError(ExitCode::kOutput, "there is no room for a larger ETDump",
                          "run fewer iterations with --etdump");
    }
}

EtdumpBytes LoadedModule::take_etdump() {
    const auto finished = phases_->get_etdump_data();
    EtdumpBytes etdump{std::unique_ptr<void, EtdumpBytes::Free>(finished.buf), finished.size};
    if (etdump.data == nullptr || etdump.size_bytes == 0) {
        throw RunnerError(ExitCode::kOutput, "there is no memory for the ETDump",
                          "run fewer iterations with --etdump");
    }
    return etdump;
}

}  // namespace etprof
