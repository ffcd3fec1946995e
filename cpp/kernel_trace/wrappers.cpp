// Stands in front of functions of ExecuTorch's libraries: the executable's definitions come first
// in symbol lookup, do their part, and call the library's own.

#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernel_trace/any_arguments.h"
#include "kernel_trace/kernel_counters.h"
#include "kernel_trace/operator_clock.h"

namespace etprof {
namespace {

using AnyFunction = void (*)(ETPROF_ALL(ETPROF_DECLARE));

/// Returns the next definition of `symbol` after the executable's own.
void* find_next(const char* symbol) {
    void* next = dlsym(RTLD_NEXT, symbol);
    if (next == nullptr) {
        std::fprintf(stderr, "etprof-runner: %s is in no library: build the runner again\n",
                     symbol);
        std::abort();
    }
    return next;
}

template <typename Function>
Function find_next_function(const char* symbol) {
    return reinterpret_cast<Function>(find_next(symbol));
}

}  // namespace
}  // namespace etprof

extern "C" {

#define ETPROF_KERNEL(index, symbol, ...)                                                  \
    void symbol(ETPROF_ALL(ETPROF_DECLARE)) {                                              \
        static const auto next = etprof::find_next_function<etprof::AnyFunction>(#symbol); \
        etprof::count_kernel_call(index);                                                  \
        next(ETPROF_ALL(ETPROF_PASS));                                                     \
    }
#define ETPROF_PARALLEL(index, symbol)                                                     \
    void symbol(ETPROF_ALL(ETPROF_DECLARE)) {                                              \
        static const auto next = etprof::find_next_function<etprof::AnyFunction>(#symbol); \
        const etprof::ParallelSection section;                                             \
        next(ETPROF_ALL(ETPROF_PASS));                                                     \
    }
#include "wrapped_symbols.inc"
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL

/// XNNPACK runs one delegate's operators. Between them it reads the clock for its own profile.
int xnn_invoke_runtime(void* runtime) {
    static const auto next = etprof::find_next_function<int (*)(void*)>("xnn_invoke_runtime");
    const etprof::DelegateSection section;
    return next(runtime);
}

/// Every reading of XNNPACK between two operators is the border between them.
int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
    static const auto next =
        etprof::find_next_function<int (*)(clockid_t, struct timespec*)>("clock_gettime");
    const int failed = next(clock, time);
    if (failed == 0 && clock == CLOCK_MONOTONIC) {
        etprof::note_clock_reading(*time);
    }
    return failed;
}
}
