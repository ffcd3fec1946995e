#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace etprof {

/// A microkernel that this build can count.
struct KernelInfo {
    const char* name;
    const char* level;  ///< sme2, sme, i8mm, dotprod or neon; "" where the name does not say
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

}  // namespace etprof
