#include "inputs.h"

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <new>

#include "npy_header.h"
#include "runner_error.h"

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

template <typename T, typename Make>
bool fill(AlignedBuffer& bytes, Make make) {
    for (std::size_t offset = 0; offset + sizeof(T) <= bytes.size_bytes(); offset += sizeof(T)) {
        const T value = static_cast<T>(make());
        std::memcpy(bytes.data() + offset, &value, sizeof value);
    }
    return true;
}

std::string input_name(std::size_t index, const MethodDescription& method) {
    return "input " + std::to_string(index) + " of '" + method.name + "'";
}

std::string describe_bytes(const ValueDescription& value) {
    return std::to_string(value.size_bytes) + " bytes for " + dtype_name(value.dtype) + " " +
           shape_text(value.shape);
}

/// "1x3x96x96" or "scalar" to sizes; missing: not a shape.
std::optional<std::vector<std::int32_t>> parse_shape(const std::string& text) {
    std::vector<std::int32_t> shape;
    if (text == kScalar) {
        return shape;
    }
    const char* next = text.data();
    const char* end = next + text.size();
    while (true) {
        std::int32_t size = 0;
        const auto [stop, failure] = std::from_chars(next, end, size);
        if (failure != std::errc{} || size < 0) {
            return std::nullopt;
        }
        shape.push_back(size);
        if (stop == end) {
            return shape;
        }
        if (*stop != 'x') {
            return std::nullopt;
        }
        next = stop + 1;
    }
}

bool fits_bound(const std::vector<std::int32_t>& shape, const std::vector<std::int32_t>& bound) {
    bool fits = shape.size() == bound.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
        fits = shape[i] <= bound[i];
    }
    return fits;
}

void apply_shape(ValueDescription& value, const std::vector<std::int32_t>& shape,
                 const std::string& name) {
    if (!fits_bound(shape, value.shape)) {
        throw RunnerError(ExitCode::kInput, name + " cannot take the shape " + shape_text(shape),
                          "its largest shape is " + shape_text(value.shape));
    }
    value.shape = shape;
    value.size_bytes = executorch::runtime::elementSize(value.dtype);
    for (const std::int32_t size : shape) {
        value.size_bytes *= static_cast<std::uint64_t>(size);
    }
}

void apply_shape_flag(ValueDescription& value, const std::string& text, const std::string& name) {
    const auto shape = parse_shape(text);
    if (!shape) {
        throw RunnerError(ExitCode::kUsage, "--shapes has '" + text + "'",
                          "write a shape as sizes joined by x, such as 1x3x96x96, or scalar");
    }
    apply_shape(value, *shape, name);
}

/// Checks a .npy file against the input; its shape counts unless --shapes has one. Returns where
/// the values begin.
std::size_t check_npy(std::istream& file, const std::string& path, ValueDescription& value,
                      const std::string& name, bool has_shape) {
    const auto header = read_npy_header(file);
    if (!header) {
        throw RunnerError(ExitCode::kInput, path + " is no .npy file that can be read here",
                          "save little-endian numbers or booleans with numpy.save");
    }
    const bool row_major = std::is_sorted(value.dim_order.begin(), value.dim_order.end());
    if (header->is_column_major || !row_major) {
        throw RunnerError(ExitCode::kInput,
                          path + " and " + name + " order their dimensions differently",
                          "write the tensor as raw values in the order that --describe tells");
    }
    if (header->dtype != value.dtype || (has_shape && header->shape != value.shape)) {
        throw RunnerError(ExitCode::kInput,
                          path + " has " + dtype_name(header->dtype) + " " +
                              shape_text(header->shape) + ", but " + name + " takes " +
                              dtype_name(value.dtype) + " " + shape_text(value.shape),
                          "convert it, for instance with astype and reshape of NumPy");
    }
    apply_shape(value, header->shape, name);
    return header->offset_bytes;
}

/// A byte that is neither would be undefined behaviour in the kernels.
void require_booleans(const AlignedBuffer& bytes, const std::string& path,
                      const std::string& name) {
    const auto is_boolean = [](unsigned char byte) { return byte <= 1; };
    if (!std::all_of(bytes.data(), bytes.data() + bytes.size_bytes(), is_boolean)) {
        throw RunnerError(ExitCode::kInput,
                          path + " has bytes other than 0 and 1, but " + name + " takes bool",
                          "write one byte per value, 0 or 1");
    }
}

/// Raw values, or a .npy file, which gives `value` its shape unless --shapes has.
AlignedBuffer read_input(const std::string& path, ValueDescription& value, const std::string& name,
                         bool has_shape) {
    const std::uint64_t file_bytes = require_file(path, "the input", ExitCode::kInput);
    std::ifstream file(path, std::ios::binary);
    const std::size_t offset = is_npy(file) ? check_npy(file, path, value, name, has_shape) : 0;
    const std::uint64_t size_bytes = file_bytes - std::min<std::uint64_t>(offset, file_bytes);
    if (size_bytes != value.size_bytes) {
        throw RunnerError(ExitCode::kInput,
                          path + " has " + std::to_string(size_bytes) + " bytes, but " + name +
                              " takes " + describe_bytes(value),
                          "write the tensor as .npy or raw little-endian values of that dtype and "
                          "shape, or give its shape with --shapes");
    }
    AlignedBuffer bytes(size_bytes);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size_bytes));
    if (!file) {
        throw RunnerError(ExitCode::kInput, "cannot read " + path,
                          "check the disk, or write the input again");
    }
    if (value.dtype == ScalarType::Bool) {
        require_booleans(bytes, path, name);
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
                          "give it as a file with --inputs");
    }
    return bytes;
}

void require_count(const std::string& flag, std::size_t given, std::size_t wanted,
                   const MethodDescription& method) {
    if (given != 0 && given != wanted) {
        throw RunnerError(ExitCode::kInput,
                          flag + " has " + std::to_string(given) + " items, but '" + method.name +
                              "' takes " + std::to_string(wanted) + " tensors",
                          "give one item per tensor input, in order (--describe lists them)");
    }
}

std::size_t count_tensors(const std::vector<ValueDescription>& values) {
    std::size_t count = 0;
    for (const ValueDescription& value : values) {
        count += value.is_tensor() ? 1 : 0;
    }
    return count;
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

std::vector<Input> prepare_inputs(const MethodDescription& method, const Options& options) {
    const std::size_t tensors = count_tensors(method.inputs);
    require_count("--inputs", options.input_paths.size(), tensors, method);
    require_count("--shapes", options.shapes.size(), tensors, method);
    std::vector<Input> inputs;
    std::size_t tensor = 0;
    for (const ValueDescription& value : method.inputs) {
        Input input;
        input.value = value;
        if (value.is_tensor()) {
            const std::string name = input_name(inputs.size(), method);
            if (!options.shapes.empty()) {
                apply_shape_flag(input.value, options.shapes[tensor], name);
            }
            if (options.input_paths.empty()) {
                input.source = InputSource::kSeeded;
                input.bytes = make_input(input.value, options.seed + tensor, name);
            } else {
                input.source = InputSource::kFile;
                input.path = options.input_paths[tensor];
                input.bytes = read_input(*input.path, input.value, name, !options.shapes.empty());
            }
            ++tensor;
        }
        inputs.push_back(std::move(input));
    }
    return inputs;
}

bool fill_seeded(AlignedBuffer& bytes, ScalarType dtype, std::uint64_t seed) {
    RandomBits random(seed);
    const auto next_float = [&random] { return random.next_float(); };
    const auto next_bit = [&random] { return random.next_bit(); };
    switch (dtype) {
        case ScalarType::Float:
        case ScalarType::ComplexFloat:
            return fill<float>(bytes, next_float);
        case ScalarType::Double:
        case ScalarType::ComplexDouble:
            return fill<double>(bytes, next_float);
        case ScalarType::Half:
        case ScalarType::ComplexHalf:
            return fill<Half>(bytes, next_float);
        case ScalarType::BFloat16:
            return fill<BFloat16>(bytes, next_float);
        case ScalarType::Bool:
        case ScalarType::Byte:
        case ScalarType::Char:
            return fill<std::uint8_t>(bytes, next_bit);
        case ScalarType::Short:
        case ScalarType::UInt16:
            return fill<std::uint16_t>(bytes, next_bit);
        case ScalarType::Int:
        case ScalarType::UInt32:
            return fill<std::uint32_t>(bytes, next_bit);
        case ScalarType::Long:
        case ScalarType::UInt64:
            return fill<std::uint64_t>(bytes, next_bit);
        default:
            return false;
    }
}

}  // namespace etprof
