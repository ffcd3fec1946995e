#include "kernel_trace/kernel_calls.h"

#include <atomic>
#include <new>

namespace etprof {

#define ETPROF_KERNEL(index, symbol, sizes) {#symbol, sizes},
#define ETPROF_PARALLEL(index, symbol)
const std::vector<KernelInfo> known_kernels = {
#include "wrapped_symbols.inc"
};
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL

namespace {

/// Of a thread, between two takings: one for each operator, microkernel and size of tile.
constexpr std::size_t kMostCounters = 1 << 14;
constexpr std::size_t kCacheLines = 128;

struct Counter {
    std::uint32_t mark;
    std::uint32_t kernel;
    Sizes sizes;
    std::atomic<std::uint64_t> calls;
};

/// What one thread counted. Only that thread adds; it is read while it rests.
struct alignas(kCacheLines) ThreadCounters {
    std::atomic<std::size_t> size{0};
    ThreadCounters* next = nullptr;
    Counter counters[kMostCounters];

    /// Whether there was room. The counters of the present mark are the last ones, and few.
    bool count(std::uint32_t mark, std::uint32_t kernel, const Sizes& sizes) noexcept {
        const std::size_t used = size.load(std::memory_order_relaxed);
        for (std::size_t i = used; i-- > 0 && counters[i].mark == mark;) {
            Counter& counter = counters[i];
            if (counter.kernel == kernel && counter.sizes == sizes) {
                const std::uint64_t calls = counter.calls.load(std::memory_order_relaxed);
                counter.calls.store(calls + 1, std::memory_order_relaxed);
                return true;
            }
        }
        if (used == kMostCounters) {
            return false;
        }
        counters[used].mark = mark;
        counters[used].kernel = kernel;
        counters[used].sizes = sizes;
        counters[used].calls.store(1, std::memory_order_relaxed);
        size.store(used + 1, std::memory_order_release);
        return true;
    }
};

// Every thread's, also after its end: what it counted stays to be taken.
std::atomic<ThreadCounters*> all_threads{nullptr};
std::atomic<bool> is_lost{false};
// Stored with every mark, read with every call: alone on its cache line.
alignas(kCacheLines) std::atomic<std::uint32_t> mark_count{0};
alignas(kCacheLines) thread_local ThreadCounters* own = nullptr;

ThreadCounters* enrol() noexcept {
    auto* const fresh = new (std::nothrow) ThreadCounters;
    if (fresh != nullptr) {
        fresh->next = all_threads.load(std::memory_order_relaxed);
        while (!all_threads.compare_exchange_weak(fresh->next, fresh, std::memory_order_release,
                                                  std::memory_order_relaxed)) {
        }
    }
    return fresh;
}

}  // namespace

void count_kernel_call(std::uint32_t kernel, const Sizes& sizes) noexcept {
    if (own == nullptr) {
        own = enrol();
    }
    const std::uint32_t mark = mark_count.load(std::memory_order_acquire);
    if (own == nullptr || !own->count(mark, kernel, sizes)) {
        is_lost.store(true, std::memory_order_relaxed);
    }
}

void set_mark_count(std::size_t marks) noexcept {
    mark_count.store(static_cast<std::uint32_t>(marks), std::memory_order_release);
}

bool take_kernel_calls(std::vector<KernelCalls>& taken) {
    taken.clear();
    auto* thread = all_threads.load(std::memory_order_acquire);
    for (; thread != nullptr; thread = thread->next) {
        const std::size_t used = thread->size.load(std::memory_order_acquire);
        for (std::size_t i = 0; i < used; ++i) {
            const Counter& counter = thread->counters[i];
            taken.push_back({counter.mark, counter.kernel, counter.sizes,
                             counter.calls.load(std::memory_order_relaxed)});
        }
        thread->size.store(0, std::memory_order_relaxed);
    }
    set_mark_count(0);
    return !is_lost.exchange(false, std::memory_order_relaxed);
}

}  // namespace etprof
