#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace etprof {

/// A microkernel that this build can count.
struct KernelInfo {
    const char* name;
    std::size_t size_count;  ///< so many of its first arguments are sizes, such as m, n and k
};

/// A call's first arguments, as far as they are sizes; the others are zero.
using Sizes = std::array<std::uintptr_t, 4>;

/// One thread's calls of one microkernel with the same sizes, between two marks of the clock.
struct KernelCalls {
    std::uint32_t mark;    ///< so many marks were made before them
    std::uint32_t kernel;  ///< position in known_kernels
    Sizes sizes;
    std::uint64_t calls;
};

/// The microkernels found in the SDK when this was built; none on x86-64.
extern const std::vector<KernelInfo> known_kernels;

/// Counts one call; any thread. No two threads write to one cache line, and nothing is thrown.
void count_kernel_call(std::uint32_t kernel, const Sizes& sizes) noexcept;

/// Calls from now on come after so many marks.
void set_mark_count(std::size_t marks) noexcept;

/// Takes what all threads counted since the last time, and begins with mark 0 again. To be called
/// while no microkernel runs. Returns false when there were more than a thread has room for.
bool take_kernel_calls(std::vector<KernelCalls>& taken);

}  // namespace etprof
