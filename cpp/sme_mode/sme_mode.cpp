#include "sme_mode/sme_mode.h"

#include <algorithm>
#include <iterator>

#include "base/runner_error.h"
#include "sme_mode/cpu_table.h"

namespace etprof {
namespace {

/// In the order of SmeMode.
constexpr const char* kModeNames[] = {"auto", "sme2", "sme1", "off"};

[[noreturn]] void refuse(SmeMode requested, const std::string& reason) {
    throw RunnerError(ExitCode::kSmeMode, std::string("--sme ") + to_string(requested), reason);
}

std::vector<std::string> list_names(const SmeFeatures& features) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < features.size(); ++i) {
        if (features[i]) {
            names.emplace_back(kSmeFeatureNames[i]);
        }
    }
    return names;
}

SmeMode best_mode(const SmeFeatures& features) {
    return !features[0] ? SmeMode::kOff : features[1] ? SmeMode::kSme2 : SmeMode::kSme1;
}

/// Refuses what the CPU does not have.
void check_cpu(SmeMode requested, const CpuTable& table) {
    const SmeMode best = best_mode(table.before);
    if (requested == SmeMode::kSme2 && best != SmeMode::kSme2) {
        refuse(requested, std::string("this CPU has no SME2") +
                              (best == SmeMode::kSme1 ? ", only SME; use --sme sme1 or off"
                                                      : "; use --sme off, or a CPU with SME2"));
    }
    if (requested == SmeMode::kSme1 && best == SmeMode::kOff) {
        refuse(requested, "this CPU has no SME; use --sme off, or a CPU with SME");
    }
}

/// Refuses what XNNPACK cannot have seen.
void check_effect(SmeMode requested, const CpuTable& table) {
    if (requested != table.applied) {
        refuse(requested, "the mode was not read before main; give --sme once, as --sme=MODE");
    }
    if (requested == SmeMode::kAutomatic) {
        return;
    }
    if (!table.was_empty) {
        refuse(requested,
               "the CPU's features were asked for before the mode was in force; use --sme auto, or "
               "a build with SME compiled out");
    }
    if (!table.is_understood) {
        refuse(requested,
               "the table of CPU features inside ExecuTorch is not laid out as this runner knows "
               "it; use --sme auto, or a runner that is built for this ExecuTorch");
    }
    if (requested != best_mode(table.now)) {
        refuse(requested, std::string("XNNPACK's table of CPU features says ") +
                              to_string(best_mode(table.now)) + "; use --sme auto");
    }
}

}  // namespace

const char* to_string(SmeMode mode) { return kModeNames[static_cast<int>(mode)]; }

std::optional<SmeMode> parse_sme_mode(std::string_view name) {
    const auto* const found = std::find(std::begin(kModeNames), std::end(kModeNames), name);
    const auto mode = static_cast<SmeMode>(found - kModeNames);
    return found == std::end(kModeNames) ? std::nullopt : std::make_optional(mode);
}

SmeMode default_sme_mode() {
    // A build with an unknown default does not configure.
    return parse_sme_mode(ETPROF_SME_DEFAULT).value_or(SmeMode::kAutomatic);
}

SmeReport require_sme_mode(SmeMode requested) {
    const bool wants_sme = requested == SmeMode::kSme1 || requested == SmeMode::kSme2;
    CpuTable table = read_cpu_table();
    if (ETPROF_SME_COMPILED_OUT && wants_sme) {
        refuse(requested,
               "SME is compiled out of this runner; use --sme off, or the runner of the preset "
               "without -off in its name");
    }
    if (table.exists) {
        check_cpu(requested, table);
        check_effect(requested, table);
    } else if (wants_sme) {
        refuse(requested,
               "this runner is built for a CPU family without SME; use --sme off, an Arm CPU, or "
               "`etprof profile --target emulator`");
    }
    if (ETPROF_SME_COMPILED_OUT) {
        // A build without SME microkernels gives one mode only, whatever the CPU has.
        table.now = {};
    }
    return {best_mode(table.now), list_names(table.before), list_names(table.now), table.svl_bits};
}

}  // namespace etprof
