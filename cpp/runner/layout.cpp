#include "layout.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace etprof {

LayoutShift parse_layout_shift(const char* text) {
    unsigned heap = 0, stack = 0;
    int end = 0;
    const bool is_shift = text != nullptr && std::strlen(text) == 9 &&
                          std::sscanf(text, "%4u,%4u%n", &heap, &stack, &end) == 2 && end == 9;
    return is_shift ? LayoutShift{heap, stack} : LayoutShift{};
}

int call_shifted(LayoutShift shift, int (*function)(void*), void* argument) {
    // Written to through volatile pointers, so that neither can be optimised away.
    volatile char* heap = nullptr;
    if (shift.heap_bytes > 0) {
        heap = static_cast<volatile char*>(std::malloc(shift.heap_bytes));
        if (heap != nullptr) {
            heap[0] = 1;
        }
    }
    volatile char* stack = static_cast<volatile char*>(__builtin_alloca(shift.stack_bytes + 1));
    stack[0] = 1;
    const int code = function(argument);
    stack[0] = 0;
    std::free(const_cast<char*>(heap));
    return code;
}

std::string plain_path(const std::string& path) {
    const std::size_t first = path.find_first_not_of('/');
    // Two slashes may mean something else than one (POSIX, 3.271); three or more do not.
    return first == std::string::npos || first < 3 ? path : path.substr(first - 1);
}

std::optional<std::string> plain_path(const std::optional<std::string>& path) {
    return path ? std::optional(plain_path(*path)) : std::nullopt;
}

}  // namespace etprof
