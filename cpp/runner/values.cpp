#include "values.h"

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <new>
#include <type_traits>

#include "base/runner_error.h"

namespace etprof {
namespace {

using executorch::aten::BFloat16;
using executorch::aten::Half;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same numbers on every machine.
class RandomBits {
 public:
    explicit RandomBits(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t bits = state_ += 0x9E3779B97F4A7C15U;
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
        return bits ^ bits >> 31;
    }

    /// Uniform over [-1, 1) in steps that float32 holds exactly.
    float next_float() {
        constexpr float kStep = 1.0F / (1 << 23);
        return static_cast<float>(next() >> 40) * kStep - 1.0F;
    }

    bool next_bit() { return next() >> 63 != 0; }

 private:
    std::uint64_t state_;
};

/// Calls visit(T{}) for the floating-point type that `dtype` is made of, and says whether there is
/// one.
template <typename Visit>
bool visit_float(ScalarType dtype, Visit visit) {
    switch (dtype) {
        case ScalarType::Float:
        case ScalarType::ComplexFloat:
            return visit(float{}), true;
        case ScalarType::Double:
        case ScalarType::ComplexDouble:
            return visit(double{}), true;
        case ScalarType::Half:
        case ScalarType::ComplexHalf:
            return visit(Half{}), true;
        case ScalarType::BFloat16:
            return visit(BFloat16{}), true;
        default:
            return false;
    }
}

bool is_integer(ScalarType dtype) {
    return executorch::runtime::isIntegralType(dtype, true) || dtype == ScalarType::UInt16 ||
           dtype == ScalarType::UInt32 || dtype == ScalarType::UInt64;
}

std::string input_name(std::size_t index, const MethodDescription& method) {
    return "input " + std::to_string(index) + " of '" + method.name + "'";
}

std::string type_text(const ValueDescription& value) {
    return dtype_name(value.dtype) + " " + shape_text(value.shape);
}

/// "1x3x96x96" or "scalar" to sizes; missing: not a shape.
std::optional<std::vector<std::int32_t>> parse_shape(const std::string& text) {
    std::vector<std::int32_t> shape;
    if (text == kScalar) {
        return shape;
    }
    for (const std::string& size : split(text, 'x')) {
        if (!parse_integer(size, shape.emplace_back()) || shape.back() < 0) {
            return std::nullopt;
        }
    }
    return shape;
}

/// Takes an item of --shapes: SHAPE, or DTYPE:SHAPE of values in the order of their indices.
void apply_shape(ValueDescription& value, const std::string& text, const std::string& name) {
    const std::size_t colon = text.find(':');
    const std::string dtype = text.substr(0, colon == std::string::npos ? 0 : colon);
    const std::string sizes = text.substr(colon == std::string::npos ? 0 : colon + 1);
    const auto shape = sizes == "largest" ? value.shape : parse_shape(sizes);
    if (!shape) {
        throw RunnerError(ExitCode::kUsage, "--shapes has '" + text + "'",
                          "write a shape as sizes joined by x, such as 1x3x96x96, or scalar");
    }
    if (!dtype.empty() && dtype != dtype_name(value.dtype)) {
        throw RunnerError(ExitCode::kInput,
                          name + " takes " + type_text(value) + ", not " + dtype + " " + sizes,
                          "convert it, for instance with astype and reshape of NumPy");
    }
    if (!dtype.empty() && !std::is_sorted(value.dim_order.begin(), value.dim_order.end())) {
        throw RunnerError(ExitCode::kInput,
                          name + " does not have its dimensions in the order of NumPy",
                          "write the tensor as raw values in the order that --describe tells");
    }
    const auto fits = [](std::int32_t size, std::int32_t bound) { return size <= bound; };
    if (!std::equal(shape->begin(), shape->end(), value.shape.begin(), value.shape.end(), fits)) {
        throw RunnerError(ExitCode::kInput, name + " cannot take the shape " + shape_text(*shape),
                          "its largest shape is " + shape_text(value.shape));
    }
    value.shape = *shape;
    value.size_bytes = executorch::runtime::elementSize(value.dtype) * count_elements(*shape);
}

AlignedBuffer read_input(const std::string& path, const ValueDescription& value,
                         const std::string& name, std::uint64_t inferences) {
    const std::uint64_t size_bytes = require_file(path, "the input", ExitCode::kInput);
    const std::uint64_t wanted_bytes = inferences * value.size_bytes;
    if (size_bytes != wanted_bytes) {
        const std::string each =
            inferences == 1 ? "" : " in each of " + std::to_string(inferences) + " inferences";
        throw RunnerError(
            ExitCode::kInput,
            path + " has " + std::to_string(size_bytes) + " bytes, but " + name + " takes " +
                std::to_string(wanted_bytes) + " bytes for " + type_text(value) + each,
            "write the tensor as raw little-endian values of that dtype and shape, "
            "or give its shape: as --shapes to etprof-runner, or in a .npy file to etprof");
    }
    AlignedBuffer bytes(size_bytes);
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size_bytes));
    if (!file) {
        throw RunnerError(ExitCode::kInput, "cannot read " + path,
                          "check the disk, or write the input again");
    }
    // A byte that is neither would be undefined behaviour in the kernels.
    const auto is_boolean = [](unsigned char byte) { return byte <= 1; };
    if (value.dtype == ScalarType::Bool &&
        !std::all_of(bytes.data(), bytes.data() + size_bytes, is_boolean)) {
        throw RunnerError(ExitCode::kInput,
                          path + " has bytes other than 0 and 1, but " + name + " takes bool",
                          "write one byte per value, 0 or 1");
    }
    return bytes;
}

AlignedBuffer make_input(const ValueDescription& value, std::uint64_t seed,
                         const std::string& name) {
    AlignedBuffer bytes(value.size_bytes);
    if (!fill_seeded(bytes, value.dtype, seed)) {
        throw RunnerError(ExitCode::kInput,
                          name + " has the dtype " + dtype_name(value.dtype) +
                              ", for which no values can be made up",
                          "give it as a file with --input");
    }
    return bytes;
}

void require_count(const std::string& flag, std::size_t given, std::size_t wanted,
                   const MethodDescription& method) {
    if (given != 0 && given != wanted) {
        throw RunnerError(
            ExitCode::kInput,
            flag + " has " + std::to_string(given) + " values, but '" + method.name + "' takes " +
                std::to_string(wanted) + " tensors",
            "give one per tensor input, in order; etprof-runner --describe lists them");
    }
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
    constexpr std::size_t kAlignment = 64;
    void* data = nullptr;
    if (posix_memalign(&data, kAlignment, size_bytes + kAlignment) != 0) {
        throw std::bad_alloc();
    }
    // XNNPACK may read a few bytes behind the end of a tensor.
    std::memset(data, 0, size_bytes + kAlignment);
    data_.reset(static_cast<unsigned char*>(data));
}

void Input::take_step(std::uint64_t step) {
    const std::size_t size_bytes = bytes.size_bytes();
    // A value that is no tensor has none.
    if (steps.size_bytes() > 0) {
        std::memcpy(bytes.data(), steps.data() + step * size_bytes, size_bytes);
    }
}

std::vector<Input> prepare_inputs(const MethodDescription& method, const Options& options) {
    const auto tensors = static_cast<std::size_t>(
        std::count_if(method.inputs.begin(), method.inputs.end(),
                      [](const ValueDescription& value) { return value.is_tensor(); }));
    require_count("--input", options.input_paths.size(), tensors, method);
    require_count("--shapes", options.shapes.size(), tensors, method);
    std::vector<Input> inputs;
    std::size_t tensor = 0;
    for (const ValueDescription& value : method.inputs) {
        Input input;
        input.value = value;
        if (value.is_tensor()) {
            const std::string name = input_name(inputs.size(), method);
            if (!options.shapes.empty()) {
                apply_shape(input.value, options.shapes[tensor], name);
            }
            if (options.input_paths.empty()) {
                input.bytes = make_input(input.value, options.seed + tensor, name);
            } else {
                input.path = options.input_paths[tensor];
                const std::uint64_t inferences = options.has_step_inputs ? options.output_steps : 1;
                AlignedBuffer read = read_input(*input.path, input.value, name, inferences);
                if (options.has_step_inputs) {
                    input.steps = std::move(read);
                    input.bytes = AlignedBuffer(input.value.size_bytes);
                } else {
                    input.bytes = std::move(read);
                }
            }
            ++tensor;
        }
        inputs.push_back(std::move(input));
    }
    return inputs;
}

bool fill_seeded(AlignedBuffer& bytes, ScalarType dtype, std::uint64_t seed) {
    RandomBits random(seed);
    if (is_integer(dtype)) {
        // Little-endian, and zero in all other bytes.
        for (std::size_t at = 0; at < bytes.size_bytes();
             at += executorch::runtime::elementSize(dtype)) {
            bytes.data()[at] = random.next_bit();
        }
        return true;
    }
    return visit_float(dtype, [&](auto value) {
        for (std::size_t at = 0; at + sizeof value <= bytes.size_bytes(); at += sizeof value) {
            value = static_cast<decltype(value)>(random.next_float());
            std::memcpy(bytes.data() + at, &value, sizeof value);
        }
    });
}

Output copy_output(const executorch::runtime::EValue& value) {
    Output output;
    const void* data = &value.payload;
    if (value.isTensor()) {
        const auto& tensor = value.toTensor();
        output.value = {"tensor",
                        tensor.scalar_type(),
                        {tensor.sizes().begin(), tensor.sizes().end()},
                        {},
                        tensor.nbytes()};
        data = tensor.const_data_ptr();
    } else {
        output.value = describe_plain(value.tag);
    }
    const auto* bytes = static_cast<const unsigned char*>(data);
    output.bytes.assign(bytes, bytes + output.value.size_bytes);
    output.nonfinite_count = count_nonfinite(bytes, output.value.size_bytes, output.value.dtype);
    return output;
}

std::uint64_t count_nonfinite(const void* data, std::size_t size_bytes, ScalarType dtype) {
    std::uint64_t count = 0;
    visit_float(dtype, [&](auto value) {
        const auto* const bytes = static_cast<const unsigned char*>(data);
        for (std::size_t at = 0; at + sizeof value <= size_bytes; at += sizeof value) {
            std::memcpy(static_cast<void*>(&value), bytes + at, sizeof value);
            count += std::isfinite(static_cast<double>(value)) ? 0 : 1;
        }
    });
    return count;
}

}  // namespace etprof
