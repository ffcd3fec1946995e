#pragma once

#include <executorch/runtime/core/error.h>

#include <string>

#include "base/runner_error.h"

namespace etprof {

/// Writes the one line on stderr that a failed run leaves, whatever bytes `message` has; returns
/// the exit code. Of threads that fail at once the first is heard; the others give it time
/// to end the process. Of a thread's failures, too, the first.
int report_failure(ExitCode code, const char* message) noexcept;

/// A damaged program can crash ExecuTorch: says so, and leaves the rest to whoever handled such
/// signals before, as Android's debugger, or to the system. With a sanitizer, does nothing.
void install_crash_report();

/// Whether a sanitizer is linked, which brings a better report of its own.
bool has_sanitizer();

/// Writes `text` to stdout at once, for whoever reads along. Throws RunnerError (kOutput).
void print(const std::string& text);

/// Takes over ExecuTorch's log, so that stderr keeps to the one line of this program, and its
/// abort, so that a failed check inside the runtime ends the process with the reason.
///
/// Call once, before anything of ExecuTorch.
void capture_runtime_log();

/// Forgets the errors that were logged so far.
void clear_runtime_errors();

/// What ExecuTorch said first since then, for it names the cause; else the error's name.
std::string reason_for(executorch::runtime::Error error);

/// Of the first 16 errors since then the oldest that contains `part`, cut to begin there, or "".
std::string find_runtime_error(const std::string& part);

}  // namespace etprof
