#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "program_description.h"
#include "session.h"
#include "values.h"

namespace etprof {

/// Version of the documents below; a reader refuses the ones it does not know.
constexpr int kSchemaVersion = 1;
/// Version 1 had operators, version 2 has the marks that Python makes them of.
constexpr int kTraceSchemaVersion = 2;

/// The result of a run as JSON.
std::string result_document(const Options& options, const ProgramDescription& program,
                            const Session& session, const std::vector<std::vector<Output>>& steps,
                            const SmeReport& sme);

/// What --kernel-trace collected, as JSON.
std::string trace_document(const Options& options, const ProgramDescription& program,
                           const Session& session, const SmeReport& sme, KernelTrace& trace);

/// One line for each timed repetition of a generation as ExecuTorch's own LLM runner prints it:
/// `PyTorchObserver {json}`, times in ms since 1970.
std::string observer_lines(const Options& options, const Session& session);

/// The answers to --describe, --cpu-info and --build-info.
std::string describe_document(const ProgramDescription& program);
std::string cpu_document();
std::string build_document();

}  // namespace etprof
