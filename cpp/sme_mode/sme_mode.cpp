#include "sme_mode/sme_mode.h"

#include "sme_mode/platform.h"

namespace etprof {
namespace {

struct NamedMode {
    SmeMode mode;
    const char* name;
};

constexpr NamedMode kNamedModes[] = {
    {SmeMode::kAutomatic, "auto"},
    {SmeMode::kSme2, "sme2"},
    {SmeMode::kSme1, "sme1"},
    {SmeMode::kOff, "off"},
};

/// A build without SME microkernels gives one mode only, whatever the CPU has.
SmeReport require_without_sme(SmeMode requested) {
    if (requested == SmeMode::kSme1 || requested == SmeMode::kSme2) {
        throw SmeModeError(std::string("--sme ") + to_string(requested) +
                           ": SME is compiled out of this runner; use --sme off, or the runner of "
                           "the preset without -off in its name");
    }
    SmeReport report = require_on_platform(requested);
    report.in_force = SmeMode::kOff;
    report.shown_features.clear();
    return report;
}

}  // namespace

const char* to_string(SmeMode mode) {
    for (const NamedMode& named : kNamedModes) {
        if (named.mode == mode) {
            return named.name;
        }
    }
    return "unknown";
}

std::optional<SmeMode> parse_sme_mode(std::string_view name) {
    for (const NamedMode& named : kNamedModes) {
        if (named.name == name) {
            return named.mode;
        }
    }
    return std::nullopt;
}

SmeMode default_sme_mode() {
    // A build with an unknown default does not configure.
    return parse_sme_mode(ETPROF_SME_DEFAULT).value_or(SmeMode::kAutomatic);
}

SmeReport require_sme_mode(SmeMode requested) {
    return ETPROF_SME_COMPILED_OUT ? require_without_sme(requested)
                                   : require_on_platform(requested);
}

}  // namespace etprof
