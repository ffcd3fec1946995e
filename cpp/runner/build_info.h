#pragma once

#include "base/json_writer.h"

namespace etprof {

/// The version of this runner, as in pyproject.toml.
const char* runner_version();

/// Writes one object: compiler, flags, pins and switches this runner was built with.
void write_build_info(JsonWriter& json);

/// Writes what was found in the linked runner: numbers of SME microkernels, hashes of libraries.
/// Null where nothing was looked for.
void write_symbol_check(JsonWriter& json);

}  // namespace etprof
