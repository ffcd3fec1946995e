#pragma once

#include <string>

#include "generation.h"
#include "json_writer.h"

namespace etprof {

/// Writes what was generated, and how fast, as the value of a member of the current object.
void write_generation(JsonWriter& json, const GenerationPlan& plan, const GenerationReport& report);

/// One line for each timed repetition as ExecuTorch's own LLM runner prints it:
/// `PyTorchObserver {json}`, times in ms since 1970.
std::string observer_lines(const GenerationPlan& plan, const GenerationReport& report);

}  // namespace etprof
