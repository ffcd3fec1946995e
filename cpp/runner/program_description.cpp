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
#include <functional>
#include <numeric>
#include <utility>

#include "messages.h"

namespace etprof {
namespace {

using executorch::extension::MmapDataLoader;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

template <typename T>
T require(Result<T> result, const std::string& path) {
    if (!result.ok()) {
        // ExecuTorch's own reason names its sizes and identifiers, on which no user can act.
        throw RunnerError(ExitCode::kModel, path + " is not a program of ExecuTorch, or is damaged",
                          "export it again, or copy it again if it was cut short");
    }
    return std::move(result.get());
}

/// `tensor_meta` is called for tensors only.
template <typename TensorMeta>
ValueDescription describe_value(Tag tag, TensorMeta tensor_meta, const std::string& path) {
    if (tag != Tag::Tensor) {
        return describe_plain(tag);
    }
    const TensorInfo info = require(tensor_meta(), path);
    return {"tensor",
            info.scalar_type(),
            {info.sizes().begin(), info.sizes().end()},
            {info.dim_order().begin(), info.dim_order().end()},
            info.nbytes(),
            info.is_memory_planned()};
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

}  // namespace

const MethodDescription* ProgramDescription::find_method(const std::string& name) const {
    const auto found =
        std::find_if(methods.begin(), methods.end(),
                     [&name](const MethodDescription& method) { return method.name == name; });
    return found == methods.end() ? nullptr : &*found;
}

const MethodDescription& ProgramDescription::require_method(const std::string& name,
                                                            const std::string& flag) const {
    if (const MethodDescription* const found = find_method(name)) {
        return *found;
    }
    std::string names;
    for (const MethodDescription& method : methods) {
        if (!method.is_constant()) {
            names += (names.empty() ? "" : ", ") + method.name;
        }
    }
    throw RunnerError(ExitCode::kMethod, path + " has no method '" + name + "'",
                      "choose with " + flag + " from: " + names);
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

ValueDescription describe_plain(Tag tag) {
    switch (tag) {
        case Tag::Int:
            return {"int", ScalarType::Long, {}, {}, sizeof(std::int64_t)};
        case Tag::Double:
            return {"double", ScalarType::Double, {}, {}, sizeof(double)};
        case Tag::Bool:
            return {"bool", ScalarType::Bool, {}, {}, sizeof(bool)};
        default:
            return {tag == Tag::String ? "string" : "none"};
    }
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
    const auto with_bits = [dtype](const std::string& kind) {
        return kind + std::to_string(8 * executorch::runtime::elementSize(dtype));
    };
    if (dtype == ScalarType::Byte) {
        return "uint8";
    }
    if (executorch::runtime::isIntegralType(dtype, false)) {
        return with_bits("int");
    }
    if (executorch::runtime::isFloatingType(dtype) && dtype != ScalarType::BFloat16) {
        return with_bits("float");
    }
    if (executorch::runtime::isComplexType(dtype)) {
        return with_bits("complex");
    }
    std::string name = executorch::runtime::toString(dtype);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return name;
}

std::size_t count_elements(const std::vector<std::int32_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

std::string shape_text(const std::vector<std::int32_t>& shape) {
    std::string text;
    for (const std::int32_t size : shape) {
        text += (text.empty() ? "" : "x") + std::to_string(size);
    }
    return text.empty() ? kScalar : text;
}

}  // namespace etprof
