#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace etprof {

/// A microkernel that this build can count; all texts are "" where the name does not say.
struct KernelInfo {
    const char* name;
    const char* level;        ///< sme2, sme, i8mm, dotprod or neon
    const char* operation;    ///< such as matmul_clamp or lhs_pack
    const char* destination;  ///< data type of what it writes
    const char* inputs;       ///< data types of what it reads, joined by commas
    const char* tile;         ///< rows x columns; "vl" counts vector lengths
    const char* instruction;  ///< such as mopa
};

/// Calls of one microkernel.
struct KernelCalls {
    std::uint32_t kernel;  ///< position in known_kernels()
    std::uint64_t calls;
};

/// The microkernels found in the SDK when this was built; none on x86-64.
const std::vector<KernelInfo>& known_kernels();

/// Counts one call; any thread.
void count_kernel_call(std::uint32_t kernel);

/// Takes the calls counted since the last time, leaving zero. Exact when no microkernel runs
/// meanwhile, as between the operators of a delegate.
std::vector<KernelCalls> take_kernel_calls();

/// Number of different threads that ever called the microkernel, at most 64.
int count_kernel_threads(std::uint32_t kernel);

}  // namespace etprof
