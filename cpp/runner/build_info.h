#pragma once

#include "json_writer.h"

namespace etprof {

/// The version of this runner, as in pyproject.toml.
const char* runner_version();

/// Writes one object: compiler, flags, pins and switches this runner was built with.
void write_build_info(JsonWriter& json);

}  // namespace etprof
