// Stands in front of functions of ExecuTorch's libraries, does its part, and calls the function.
//
// Shared libraries: the executable's definitions come first in symbol lookup, and the library's own
// is looked up behind them. Static libraries (ETPROF_WRAPPED_AT_LINK): the linker's --wrap leads
// every reference to `f` in another object to `__wrap_f`, and `__real_f` to the function itself.

#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernel_trace/kernel_calls.h"
#include "kernel_trace/operator_clock.h"

// Stand-ins do not know the signatures of the functions they stand for. They pass on everything
// that can hold an argument: all argument registers and enough of the stack. The functions take
// integers, pointers and floating-point numbers only, each in one register or one 8-byte stack slot
// under the AArch64 and x86-64 System V calling conventions, so their arguments arrive as they were
// given.

#ifdef __APPLE__
#error "macOS packs stack arguments and binds symbols per library; no kernel trace there"
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

#ifdef ETPROF_WRAPPED_AT_LINK
#define ETPROF_STAND_IN(symbol) __wrap_##symbol
#define ETPROF_NEXT(symbol) __real_##symbol
#else
#define ETPROF_STAND_IN(symbol) symbol
#define ETPROF_NEXT(symbol)                                                                   \
    ([] {                                                                                     \
        static const auto next =                                                              \
            reinterpret_cast<decltype(&ETPROF_STAND_IN(symbol))>(etprof::find_next(#symbol)); \
        return next;                                                                          \
    }())

namespace etprof {
namespace {

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

}  // namespace
}  // namespace etprof
#endif

// What a call is counted by, where so many of its first arguments are sizes.
#define ETPROF_SIZES_0 \
    {                  \
    }
#define ETPROF_SIZES_3 {word0, word1, word2}
#define ETPROF_SIZES_4 {word0, word1, word2, word3}

extern "C" {

#ifdef ETPROF_WRAPPED_AT_LINK
#define ETPROF_KERNEL(index, symbol, sizes) \
    std::uintptr_t __real_##symbol(ETPROF_ALL(ETPROF_DECLARE));
#define ETPROF_PARALLEL(index, symbol) void __real_##symbol(ETPROF_ALL(ETPROF_DECLARE));
#include "wrapped_symbols.inc"
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL
int __real_xnn_invoke_runtime(void* runtime);
int __real_clock_gettime(clockid_t clock, struct timespec* time);
#endif

// An integer result, where there is one, is passed on too.
#define ETPROF_KERNEL(index, symbol, sizes)                              \
    std::uintptr_t ETPROF_STAND_IN(symbol)(ETPROF_ALL(ETPROF_DECLARE)) { \
        etprof::count_kernel_call(index, ETPROF_SIZES_##sizes);          \
        return ETPROF_NEXT(symbol)(ETPROF_ALL(ETPROF_PASS));             \
    }
#define ETPROF_PARALLEL(index, symbol)                         \
    void ETPROF_STAND_IN(symbol)(ETPROF_ALL(ETPROF_DECLARE)) { \
        const etprof::ParallelSection section;                 \
        ETPROF_NEXT(symbol)(ETPROF_ALL(ETPROF_PASS));          \
    }
#include "wrapped_symbols.inc"
#undef ETPROF_KERNEL
#undef ETPROF_PARALLEL
/// XNNPACK runs one delegate's operators. Between them it reads the clock for its own profile.
int ETPROF_STAND_IN(xnn_invoke_runtime)(void* runtime) {
    const etprof::DelegateSection section;
    return ETPROF_NEXT(xnn_invoke_runtime)(runtime);
}

/// Every reading of XNNPACK between two operators is the border between them.
int ETPROF_STAND_IN(clock_gettime)(clockid_t clock, struct timespec* time) noexcept(
    noexcept(clock_gettime(clock, time))) {  // glibc alone promises it
    const int failed = ETPROF_NEXT(clock_gettime)(clock, time);
    if (failed == 0 && clock == CLOCK_MONOTONIC) {
        etprof::note_clock_reading(*time);
    }
    return failed;
}
}
