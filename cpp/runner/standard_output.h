#pragma once

#include <string>

namespace etprof {

/// Writes `text` at once, for whoever reads along. Throws RunnerError (kOutput).
void print(const std::string& text);

}  // namespace etprof
