// Linux and Android on aarch64: the switch works at run time.

#include <string>

#include "sme_mode/auxiliary_vector.h"
#include "sme_mode/hwcaps.h"
#include "sme_mode/platform.h"

namespace etprof {
namespace {

using ValueOf = std::uint64_t (*)(unsigned long);

std::vector<std::string> list_features(ValueOf value_of) {
    std::vector<std::string> names;
    for (const HwcapBit& hwcap : kSmeHwcaps) {
        if (value_of(hwcap.type) >> hwcap.bit & 1) {
            names.emplace_back(hwcap.name);
        }
    }
    return names;
}

SmeMode best_mode(ValueOf value_of) {
    const std::uint64_t bits = value_of(kAtHwcap2);
    if ((bits >> kSmeBit & 1) == 0) {
        return SmeMode::kOff;
    }
    return (bits >> kSme2Bit & 1) != 0 ? SmeMode::kSme2 : SmeMode::kSme1;
}

/// Throws when the CPU does not have what `requested` needs.
void check_cpu(SmeMode requested) {
    const SmeMode best = best_mode(real_auxiliary_value);
    if (requested == SmeMode::kSme2 && best != SmeMode::kSme2) {
        throw SmeModeError(std::string("--sme sme2: this CPU has no SME2") +
                           (best == SmeMode::kSme1 ? ", only SME; use --sme sme1 or off"
                                                   : "; use --sme off, or a CPU with SME2"));
    }
    if (requested == SmeMode::kSme1 && best == SmeMode::kOff) {
        throw SmeModeError("--sme sme1: this CPU has no SME; use --sme off, or a CPU with SME");
    }
}

/// Throws when the CPU detection cannot have seen `requested`.
void check_effect(SmeMode requested) {
    if (requested != mode_before_main()) {
        throw SmeModeError(std::string("--sme ") + to_string(requested) +
                           ": the mode was not read before main; give --sme once, as "
                           "--sme=MODE");
    }
    if (requested != SmeMode::kAutomatic && hwcap2_question_count() == 0) {
        throw SmeModeError(std::string("--sme ") + to_string(requested) +
                           ": no library asked this process's getauxval for CPU features, so the "
                           "mode has no effect; use --sme auto, or a build with SME compiled out");
    }
}

}  // namespace

SmeReport require_on_platform(SmeMode requested) {
    check_cpu(requested);
    check_effect(requested);
    return {requested, best_mode(shown_auxiliary_value), list_features(real_auxiliary_value),
            list_features(shown_auxiliary_value)};
}

}  // namespace etprof
