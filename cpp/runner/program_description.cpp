#include "program_description.h"

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/executor/program.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "runtime_log.h"

namespace etprof {
namespace {

using executorch::extension::MmapDataLoader;
using executorch::runtime::Error;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

[[noreturn]] void refuse_program(const std::string& path, Error error) {
    const std::vector<std::string> reasons = runtime_errors();
    throw RunnerError(ExitCode::kModel,
                      path + " is not a program that ExecuTorch can read (" +
                          (reasons.empty() ? to_string(error) : reasons.front()) + ")",
                      "export it again, or copy it again if it was cut short");
}

template <typename T>
T require(Result<T> result, const std::string& path) {
    if (!result.ok()) {
        refuse_program(path, result.error());
    }
    return std::move(result.get());
}

/// What is fixed at export; only its kind and its size are known without loading the method.
ValueDescription describe_fixed_value(Tag tag) {
    ValueDescription value;
    switch (tag) {
        case Tag::Int:
            value.kind = "int";
            value.dtype = ScalarType::Long;
            break;
        case Tag::Double:
            value.kind = "double";
            value.dtype = ScalarType::Double;
            break;
        case Tag::Bool:
            value.kind = "bool";
            value.dtype = ScalarType::Bool;
            break;
        default:
            value.kind = tag == Tag::String ? "string" : "none";
            return value;
    }
    value.size_bytes = executorch::runtime::elementSize(value.dtype);
    return value;
}

ValueDescription describe_tensor(const TensorInfo& info) {
    ValueDescription value;
    value.kind = "tensor";
    value.dtype = info.scalar_type();
    value.shape.assign(info.sizes().begin(), info.sizes().end());
    value.dim_order.assign(info.dim_order().begin(), info.dim_order().end());
    value.size_bytes = info.nbytes();
    value.is_memory_planned = info.is_memory_planned();
    return value;
}

/// `tensor_meta` is called for tensors only.
template <typename TensorMeta>
ValueDescription describe_value(Tag tag, TensorMeta tensor_meta, const std::string& path) {
    if (tag == Tag::Tensor) {
        return describe_tensor(require(tensor_meta(), path));
    }
    return describe_fixed_value(tag);
}

MethodDescription describe_method(const MethodMeta& meta, const std::string& path) {
    MethodDescription method;
    method.name = meta.name();
    for (std::size_t i = 0; i < meta.num_inputs(); ++i) {
        method.inputs.push_back(describe_value(
            require(meta.input_tag(i), path), [&] { return meta.input_tensor_meta(i); }, path));
    }
    for (std::size_t i = 0; i < meta.num_outputs(); ++i) {
        method.outputs.push_back(describe_value(
            require(meta.output_tag(i), path), [&] { return meta.output_tensor_meta(i); }, path));
    }
    for (std::size_t i = 0; i < meta.num_backends(); ++i) {
        // One entry per delegate: the same backend may come many times.
        const std::string backend = require(meta.get_backend_name(i), path);
        if (std::find(method.backends.begin(), method.backends.end(), backend) ==
            method.backends.end()) {
            method.backends.push_back(backend);
        }
    }
    for (std::size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
        const std::int64_t size_bytes = require(meta.memory_planned_buffer_size(i), path);
        method.planned_buffers_bytes.push_back(static_cast<std::uint64_t>(size_bytes));
    }
    return method;
}

std::string list_methods(const std::vector<MethodDescription>& methods) {
    std::string names;
    for (const MethodDescription& method : methods) {
        names += (names.empty() ? "" : ", ") + method.name;
    }
    return names;
}

}  // namespace

const MethodDescription& ProgramDescription::find_method(const std::string& name) const {
    for (const MethodDescription& method : methods) {
        if (method.name == name) {
            return method;
        }
    }
    throw RunnerError(ExitCode::kMethod, path + " has no method '" + name + "'",
                      "choose with --method from: " + list_methods(methods));
}

ProgramDescription describe_program(const std::string& path) {
    ProgramDescription description{path, require_file(path, "the program", ExitCode::kModel), {}};
    clear_runtime_errors();
    MmapDataLoader loader =
        require(MmapDataLoader::from(path.c_str(), MmapDataLoader::MlockConfig::NoMlock), path);
    const Program program =
        require(Program::load(&loader, Program::Verification::InternalConsistency), path);
    for (std::size_t i = 0; i < program.num_methods(); ++i) {
        const char* name = require(program.get_method_name(i), path);
        description.methods.push_back(
            describe_method(require(program.method_meta(name), path), path));
    }
    return description;
}

std::uint64_t require_file(const std::string& path, const std::string& role, ExitCode code) {
    struct stat status{};
    const bool found = stat(path.c_str(), &status) == 0;
    if (!found || access(path.c_str(), R_OK) != 0) {
        throw RunnerError(code, "cannot read " + path + " (" + std::strerror(errno) + ")",
                          "give " + role + " as a file that exists and can be read");
    }
    if (!S_ISREG(status.st_mode)) {
        throw RunnerError(code, path + " is not a file", "give " + role + " as a regular file");
    }
    return static_cast<std::uint64_t>(status.st_size);
}

std::string dtype_name(ScalarType dtype) {
    switch (dtype) {
        case ScalarType::Byte:
            return "uint8";
        case ScalarType::Char:
            return "int8";
        case ScalarType::Short:
            return "int16";
        case ScalarType::Int:
            return "int32";
        case ScalarType::Long:
            return "int64";
        case ScalarType::Half:
            return "float16";
        case ScalarType::Float:
            return "float32";
        case ScalarType::Double:
            return "float64";
        case ScalarType::ComplexHalf:
            return "complex32";
        case ScalarType::ComplexFloat:
            return "complex64";
        case ScalarType::ComplexDouble:
            return "complex128";
        default:
            break;
    }
    std::string name = executorch::runtime::toString(dtype);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return name;
}

std::string shape_text(const std::vector<std::int32_t>& shape) {
    std::string text;
    for (const std::int32_t size : shape) {
        text += (text.empty() ? "" : "x") + std::to_string(size);
    }
    return text.empty() ? kScalar : text;
}

}  // namespace etprof
