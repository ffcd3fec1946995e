#pragma once

#include <string>
#include <vector>

namespace etprof {

/// Takes over ExecuTorch's log, so that stderr keeps to the one line of this program, and its
/// abort, so that a failed check inside the runtime ends in `on_abort` with the reason.
///
/// `on_abort` must not return. Call once, before anything of ExecuTorch.
void capture_runtime_log(void (*on_abort)(const std::string& reason));

/// Forgets the errors that were logged so far.
void clear_runtime_errors();

/// The errors ExecuTorch logged since the last clear, oldest first; at most the first 16.
std::vector<std::string> runtime_errors();

/// The first of these errors that contains `part`, cut to begin there; "" when there is none.
std::string find_runtime_error(const std::string& part);

}  // namespace etprof
