#pragma once

#include <cstdint>

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
