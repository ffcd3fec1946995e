#pragma once

#include <stdexcept>
#include <string>

namespace etprof {

/// What etprof-runner's exit codes mean.
enum class ExitCode : int {
    kOk = 0,
    /// A flag or its value.
    kUsage = 2,
    /// The program or its data file: missing, unreadable or damaged.
    kModel = 3,
    /// An input that does not fit the method.
    kInput = 4,
    /// A method that does not exist or cannot be loaded.
    kMethod = 5,
    /// A method that failed while it ran.
    kExecution = 6,
    /// A result that cannot be written.
    kOutput = 7,
    /// An SME mode that this CPU, system or build cannot give.
    kSmeMode = 8,
    /// Anything that is our own fault, and whatever stops ExecuTorch itself.
    kInternal = 70,
};

/// A failure the user can act on: what happened, and the way out.
class RunnerError : public std::runtime_error {
 public:
    RunnerError(ExitCode code, const std::string& what_happened, const std::string& way_out)
        : std::runtime_error(what_happened + ": " + way_out), code_(code) {}

    ExitCode code() const { return code_; }

 private:
    ExitCode code_;
};

}  // namespace etprof
