#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace etprof {

/// The environment variable that says by how many bytes this launch's heap and stack are moved:
/// two numbers of four digits, such as `1040,0272`. What is no such text moves nothing.
inline constexpr char kLayoutVariable[] = "ETPROF_LAYOUT";

/// By how many bytes heap and stack are moved, 0 to 9999 each.
struct LayoutShift {
    std::size_t heap_bytes = 0;
    std::size_t stack_bytes = 0;
};

/// Reads the text of the variable; null, or anything but two numbers of four digits, is no shift.
LayoutShift parse_layout_shift(const char* text);

/// Calls `function(argument)` with everything that it allocates, and its frames, moved by `shift`.
///
/// Where code and data lie changes times by more than what is compared (Mytkowicz et al., ASPLOS
/// 2009, doi:10.1145/1508244.1508275). Drawn anew for every launch, it is noise between launches
/// instead of a difference between the sides of a comparison.
int call_shifted(LayoutShift shift, int (*function)(void*), void* argument);

/// The path without what gives the paths of all launches one length: slashes before the first.
std::string plain_path(const std::string& path);
std::optional<std::string> plain_path(const std::optional<std::string>& path);

}  // namespace etprof
