// Stands in front of functions of ExecuTorch's static libraries: the linker's --wrap leads every
// reference to `f` in another object to `__wrap_f` here, and `__real_f` to the function itself.

#include <time.h>

#include "kernel_trace/any_arguments.h"
#include "kernel_trace/kernel_counters.h"
#include "kernel_trace/operator_clock.h"

extern "C" {

// An integer result, where there is one, is passed on too.
#define ETPROF_KERNEL(index, symbol, ...)                        \
    std::uintptr_t __real_##symbol(ETPROF_ALL(ETPROF_DECLARE));  \
    std::uintptr_t __wrap_##symbol(ETPROF_ALL(ETPROF_DECLARE)) { \
        etprof::count_kernel_call(index);                        \
        return __real_##symbol(ETPROF_ALL(ETPROF_PASS));         \
    }
#define ETPROF_PARALLEL(index, symbol)                 \
    void __real_##symbol(ETPROF_ALL(ETPROF_DECLARE));  \
    void __wrap_##symbol(ETPROF_ALL(ETPROF_DECLARE)) { \
        const etprof::ParallelSection section;         \
        __real_##symbol(ETPROF_ALL(ETPROF_PASS));      \
    }
#include "wrapped_symbols.inc"
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL

/// XNNPACK runs one delegate's operators. Between them it reads the clock for its own profile.
int __real_xnn_invoke_runtime(void* runtime);
int __wrap_xnn_invoke_runtime(void* runtime) {
    const etprof::DelegateSection section;
    return __real_xnn_invoke_runtime(runtime);
}

/// Every reading of XNNPACK between two operators is the border between them.
int __real_clock_gettime(clockid_t clock, struct timespec* time);
int __wrap_clock_gettime(clockid_t clock, struct timespec* time) {
    const int failed = __real_clock_gettime(clock, time);
    if (failed == 0 && clock == CLOCK_MONOTONIC) {
        etprof::note_clock_reading(*time);
    }
    return failed;
}
}
