#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generation.h"
#include "inputs.h"
#include "kernel_trace/kernel_trace.h"
#include "model_session.h"
#include "options.h"
#include "outputs.h"
#include "program_description.h"

namespace etprof {

/// Version of the documents below; a reader refuses the ones it does not know.
constexpr int kSchemaVersion = 1;

/// The result of a run as JSON; `generation` is null for a run that generated no tokens.
std::string result_document(const Options& options, const ProgramDescription& program,
                            const std::vector<Input>& inputs, const Measurements& measurements,
                            const std::vector<Output>& outputs,
                            std::optional<std::uint64_t> etdump_size_bytes, const SmeReport& sme,
                            const GenerationSession* generation = nullptr);

/// What --kernel-trace collected, as JSON.
std::string trace_document(const Options& options, const ProgramDescription& program,
                           const Measurements& measurements, const SmeReport& sme,
                           KernelTrace& trace);

/// The answers to --describe, --cpu-info and --build-info.
std::string describe_document(const ProgramDescription& program);
std::string cpu_document();
std::string build_document();

}  // namespace etprof
