// Stands in front of functions of ExecuTorch's libraries: the executable's definitions come first
// in symbol lookup, do their part, and call the library's own.
//
// The stand-ins do not know the signatures. They pass on everything that can hold an argument: all
// argument registers and enough of the stack. The functions take integers, pointers and
// floating-point numbers only, each in one register or one 8-byte stack slot under the AArch64 and
// x86-64 System V calling conventions, so their arguments arrive as they were given.

#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernel_trace/kernel_counters.h"
#include "kernel_trace/operator_clock.h"

#ifdef __APPLE__
#error "macOS packs stack arguments and binds symbols per library; the kernel trace is for Linux"
#endif

#ifdef __aarch64__
#define ETPROF_REGISTERS(macro)                                                     \
    macro(word, 0), macro(word, 1), macro(word, 2), macro(word, 3), macro(word, 4), \
        macro(word, 5), macro(word, 6), macro(word, 7)
#else
#define ETPROF_REGISTERS(macro) \
    macro(word, 0), macro(word, 1), macro(word, 2), macro(word, 3), macro(word, 4), macro(word, 5)
#endif
#define ETPROF_VECTORS(macro)                                                                 \
    macro(number, 0), macro(number, 1), macro(number, 2), macro(number, 3), macro(number, 4), \
        macro(number, 5), macro(number, 6), macro(number, 7)
#define ETPROF_STACK(macro)                                                                  \
    macro(stack, 0), macro(stack, 1), macro(stack, 2), macro(stack, 3), macro(stack, 4),     \
        macro(stack, 5), macro(stack, 6), macro(stack, 7), macro(stack, 8), macro(stack, 9), \
        macro(stack, 10), macro(stack, 11)
#define ETPROF_DECLARE_word(index) std::uintptr_t word##index
#define ETPROF_DECLARE_number(index) double number##index
#define ETPROF_DECLARE_stack(index) std::uintptr_t stack##index
#define ETPROF_DECLARE(kind, index) ETPROF_DECLARE_##kind(index)
#define ETPROF_PASS(kind, index) kind##index
#define ETPROF_ALL(macro) ETPROF_REGISTERS(macro), ETPROF_VECTORS(macro), ETPROF_STACK(macro)

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
