#include "layout.h"

#include <cstdlib>
#include <cstring>

namespace etprof {
namespace {

constexpr std::size_t kDigits = 4;

/// The number in four digits; -1 for any other character.
int four_digits(const char* text) {
    int value = 0;
    for (std::size_t i = 0; i < kDigits; ++i) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

}  // namespace

LayoutShift parse_layout_shift(const char* text) {
    if (text == nullptr || std::strlen(text) != 2 * kDigits + 1 || text[kDigits] != ',') {
        return {};
    }
    const int heap = four_digits(text), stack = four_digits(text + kDigits + 1);
    if (heap < 0 || stack < 0) {
        return {};
    }
    return {static_cast<std::size_t>(heap), static_cast<std::size_t>(stack)};
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
