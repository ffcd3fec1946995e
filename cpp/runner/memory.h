#pragma once

#include <cstdint>
#include <optional>

namespace etprof {

/// Bytes of this process in physical memory now; missing where the system does not tell.
std::optional<std::uint64_t> resident_bytes();

/// As resident_bytes, with pages that several processes share counted in part (PSS, Linux and
/// Android); missing where the system does not tell.
std::optional<std::uint64_t> proportional_bytes();

/// The most bytes this process ever had in physical memory.
std::uint64_t peak_resident_bytes();

}  // namespace etprof
