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

SmeReport require_sme_mode(SmeMode requested) { return require_on_platform(requested); }

}  // namespace etprof
