#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace etprof {

/// What a file in NumPy's .npy format (NEP 1, versions 1 to 3) says of the array it holds.
struct NpyHeader {
    executorch::aten::ScalarType dtype = executorch::aten::ScalarType::Undefined;
    std::vector<std::int32_t> shape;
    /// Whether the first index runs fastest, as in Fortran.
    bool is_column_major = false;
    /// Where the array begins in the file.
    std::size_t offset_bytes = 0;
};

/// Whether `file` begins as .npy files do; leaves it at its beginning.
bool is_npy(std::istream& file);

/// Reads the header; missing when it is damaged, or its dtype is none that a program can take, such
/// as big-endian numbers.
std::optional<NpyHeader> read_npy_header(std::istream& file);

}  // namespace etprof
