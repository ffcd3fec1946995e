#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/tag.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/runner_error.h"

namespace etprof {

using executorch::aten::ScalarType;

/// What one input or output of a method is.
struct ValueDescription {
    /// "tensor", or for what is fixed at export: "int", "double", "bool", "string", "none".
    std::string kind;
    /// Undefined for "string" and "none".
    ScalarType dtype = ScalarType::Undefined;
    /// The upper bound where the shape is dynamic; empty for what is no tensor.
    std::vector<std::int32_t> shape{};
    std::vector<std::uint8_t> dim_order{};
    std::uint64_t size_bytes = 0;
    /// Whether the program brings the memory, or its user has to.
    bool is_memory_planned = true;

    bool is_tensor() const { return kind == "tensor"; }
};

struct MethodDescription {
    std::string name;
    std::vector<ValueDescription> inputs;
    std::vector<ValueDescription> outputs;
    std::vector<std::string> backends;
    std::vector<std::uint64_t> planned_buffers_bytes;

    /// Whether all it does is to tell a number, such as get_max_seq_len.
    bool is_constant() const {
        return inputs.empty() && outputs.size() == 1 && !outputs[0].is_tensor();
    }
};

struct ProgramDescription {
    std::string path;
    std::uint64_t size_bytes = 0;
    std::vector<MethodDescription> methods;

    /// Null when there is none of that name.
    const MethodDescription* find_method(const std::string& name) const;
    /// Throws RunnerError (kMethod) that lists what `flag` can choose.
    const MethodDescription& require_method(const std::string& name, const std::string& flag) const;
};

/// Reads what the program says about itself, after ExecuTorch has verified the whole of it.
///
/// The program is mapped, and let go again: what is loaded and timed later is not touched by this.
/// Throws RunnerError (kModel) for a file that is missing, unreadable, truncated or corrupt.
ProgramDescription describe_program(const std::string& path);

/// What a value is that is no tensor.
ValueDescription describe_plain(executorch::runtime::Tag tag);

/// Size of a regular file. Throws RunnerError (`code`) for any other, calling it by `role`.
std::uint64_t require_file(const std::string& path, const std::string& role, ExitCode code);

/// "float32", "int64", …: NumPy's names where it has the type.
std::string dtype_name(ScalarType dtype);

std::size_t count_elements(const std::vector<std::int32_t>& shape);

/// The shape of no dimensions, in words.
constexpr const char* kScalar = "scalar";

/// "1x3x224x224", or kScalar.
std::string shape_text(const std::vector<std::int32_t>& shape);

}  // namespace etprof
