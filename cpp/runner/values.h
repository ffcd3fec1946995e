#pragma once

#include <executorch/runtime/core/evalue.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "program_description.h"

namespace etprof {

/// What malloc and its kin gave.
struct Free {
    void operator()(void* data) const { std::free(data); }
};

/// Memory aligned for any vector load, of fixed size, zeroed.
class AlignedBuffer {
 public:
    AlignedBuffer() = default;
    /// Throws std::bad_alloc.
    explicit AlignedBuffer(std::size_t size_bytes);

    unsigned char* data() const { return data_.get(); }
    std::size_t size_bytes() const { return size_bytes_; }

 private:
    std::unique_ptr<unsigned char, Free> data_;
    std::size_t size_bytes_ = 0;
};

/// One input of the method as it will be given to it.
struct Input {
    ValueDescription value;
    /// Missing when its values are made up, or fixed in the program.
    std::optional<std::string> path;
    AlignedBuffer bytes;
    /// With --step-inputs: those of all inferences, one after the other.
    AlignedBuffer steps;

    /// Takes the values of an inference; the first is 0.
    void take_step(std::uint64_t step);
};

/// Reads the inputs, raw little-endian values, from the files of `options`, or makes them up from
/// its seed when it names none.
///
/// Throws RunnerError (kInput) when count, shape, dtype or size do not fit the method.
std::vector<Input> prepare_inputs(const MethodDescription& method, const Options& options);

/// Fills `bytes` with values of `dtype` that depend on `seed` alone: floats from [-1, 1), integers
/// 0 or 1, booleans. False for a dtype without plain values, such as packed bits.
bool fill_seeded(AlignedBuffer& bytes, ScalarType dtype, std::uint64_t seed);

/// One output of an inference, copied.
struct Output {
    ValueDescription value;
    std::vector<unsigned char> bytes;
    /// NaN and infinite elements; 0 for integers.
    std::uint64_t nonfinite_count = 0;
    std::optional<std::string> path;
};

/// A finished ETDump in memory.
struct EtdumpBytes {
    std::unique_ptr<void, Free> data;
    std::size_t size_bytes = 0;
};

/// Copies an output with its bytes.
Output copy_output(const executorch::runtime::EValue& value);

/// Counts the NaN and infinite elements of `size_bytes` bytes of `dtype`.
std::uint64_t count_nonfinite(const void* data, std::size_t size_bytes, ScalarType dtype);

}  // namespace etprof
