#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace etprof {

/// Sets the size of the pool that ExecuTorch's kernels and XNNPACK share, if one is wanted, and
/// returns the size in force. Call before any program is loaded: XNNPACK keeps the pool it finds.
std::size_t configure_thread_pool(std::optional<std::uint32_t> threads);

}  // namespace etprof
