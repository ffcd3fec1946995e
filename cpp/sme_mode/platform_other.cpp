// CPUs without SME, and macOS, where the CPU detection cannot be told what to see.

#include <string>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "sme_mode/platform.h"

namespace etprof {
namespace {

#ifdef __APPLE__

bool has_feature(const char* name) {
    int value = 0;
    std::size_t size = sizeof(value);
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

std::vector<std::string> list_cpu_features() {
    std::vector<std::string> names;
    if (has_feature("hw.optional.arm.FEAT_SME")) {
        names.emplace_back("sme");
    }
    if (has_feature("hw.optional.arm.FEAT_SME2")) {
        names.emplace_back("sme2");
    }
    return names;
}

std::string way_out() {
    return ": on macOS the build decides the SME mode, there is no run-time switch; use "
           "the runner of preset macos-sme2 or macos-sme2-off without --sme";
}

#else

std::vector<std::string> list_cpu_features() { return {}; }

std::string way_out() {
    return ": this runner is built for a CPU family without SME; use --sme off, an Arm "
           "CPU, or `etprof profile --target emulator`";
}

#endif

SmeMode best_mode(const std::vector<std::string>& features) {
    if (default_sme_mode() == SmeMode::kOff || features.empty()) {
        return SmeMode::kOff;
    }
    return features.back() == "sme2" ? SmeMode::kSme2 : SmeMode::kSme1;
}

}  // namespace

SmeReport require_on_platform(SmeMode requested) {
    std::vector<std::string> features = list_cpu_features();
    const SmeMode in_force = best_mode(features);
    if (requested != SmeMode::kAutomatic && requested != in_force) {
        throw SmeModeError(std::string("--sme ") + to_string(requested) + way_out());
    }
    std::vector<std::string> shown;
    if (in_force != SmeMode::kOff) {
        shown = features;
    }
    return {requested, in_force, std::move(features), std::move(shown)};
}

}  // namespace etprof
