#pragma once

#include "options.h"

namespace etprof {

/// Refuses to write a file over another that is read or written too, by whatever names and links
/// the two are given. Throws RunnerError (kUsage) that names both flags.
void require_distinct_files(const Options& options);

}  // namespace etprof
