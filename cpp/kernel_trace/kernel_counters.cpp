#include "kernel_trace/kernel_counters.h"

#include <atomic>
#include <bitset>
#include <memory>

namespace etprof {
namespace {

struct Counter {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> threads{0};
};

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
Counter counters[kernel_count + 1];
std::atomic<bool> any_call{false};

/// One bit per thread, in order of first call; threads beyond 64 share bits.
std::uint64_t this_thread_bit() {
    static std::atomic<unsigned> next{0};
    thread_local const std::uint64_t bit = std::uint64_t{1} << (next++ % 64);
    return bit;
}

}  // namespace

const std::vector<KernelInfo>& known_kernels() { return kernels; }

void count_kernel_call(std::uint32_t kernel) {
    Counter& counter = counters[kernel];
    counter.calls.fetch_add(1, std::memory_order_relaxed);
    counter.threads.fetch_or(this_thread_bit(), std::memory_order_relaxed);
    any_call.store(true, std::memory_order_relaxed);
}

std::vector<KernelCalls> take_kernel_calls() {
    std::vector<KernelCalls> taken;
    if (!any_call.exchange(false, std::memory_order_relaxed)) {
        return taken;
    }
    for (std::uint32_t kernel = 0; kernel < kernel_count; ++kernel) {
        const std::uint64_t calls = counters[kernel].calls.exchange(0, std::memory_order_relaxed);
        if (calls != 0) {
            taken.push_back({kernel, calls});
        }
    }
    return taken;
}

int count_kernel_threads(std::uint32_t kernel) {
    return static_cast<int>(std::bitset<64>(counters[kernel].threads.load()).count());
}

}  // namespace etprof
