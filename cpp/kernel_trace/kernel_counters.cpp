#include "kernel_trace/kernel_counters.h"

#include <atomic>
#include <memory>

namespace etprof {
namespace {

#define ETPROF_KERNEL(index, symbol, ...) {__VA_ARGS__},
#define ETPROF_PARALLEL(index, symbol)
const std::vector<KernelInfo> kernels = {
#include "wrapped_symbols.inc"
};
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL

#define ETPROF_KERNEL(index, ...) +1
#define ETPROF_PARALLEL(index, symbol)
constexpr std::size_t kernel_count = 0
#include "wrapped_symbols.inc"
    ;
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL

// One more than there are, because an array cannot be empty.
std::atomic<std::uint64_t> counters[kernel_count + 1];
std::atomic<bool> any_call{false};

}  // namespace

const std::vector<KernelInfo>& known_kernels() { return kernels; }

void count_kernel_call(std::uint32_t kernel) {
    counters[kernel].fetch_add(1, std::memory_order_relaxed);
    any_call.store(true, std::memory_order_relaxed);
}

std::vector<KernelCalls> take_kernel_calls() {
    std::vector<KernelCalls> taken;
    if (!any_call.exchange(false, std::memory_order_relaxed)) {
        return taken;
    }
    for (std::uint32_t kernel = 0; kernel < kernel_count; ++kernel) {
        const std::uint64_t calls = counters[kernel].exchange(0, std::memory_order_relaxed);
        if (calls != 0) {
            taken.push_back({kernel, calls});
        }
    }
    return taken;
}

}  // namespace etprof
