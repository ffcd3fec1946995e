#include "standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runner_error.h"

namespace etprof {

void print(const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0) {
        throw RunnerError(ExitCode::kOutput,
                          std::string("cannot write to stdout (") + std::strerror(errno) + ")",
                          "send it to a file on a disk with space, or a program that reads it");
    }
}

}  // namespace etprof
