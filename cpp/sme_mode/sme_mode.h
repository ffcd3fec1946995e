#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace etprof {

/// Which SME microkernels XNNPACK may choose in this process.
enum class SmeMode {
    kAutomatic,  ///< all that the CPU has
    kSme2,       ///< the same, but only on a CPU with SME2
    kSme1,       ///< FEAT_SME without SME2 and later
    kOff,        ///< none
};

/// What came of the mode that was asked for.
struct SmeReport {
    SmeMode in_force;                         ///< kSme2, kSme1 or kOff, never kAutomatic
    std::vector<std::string> cpu_features;    ///< SME features that XNNPACK's table had at first
    std::vector<std::string> shown_features;  ///< those that it has now
    std::optional<std::uint32_t> svl_bits;    ///< streaming vector length; missing: no SME
};

const char* to_string(SmeMode mode);

/// Returns the mode called `name`, or nothing.
std::optional<SmeMode> parse_sme_mode(std::string_view name);

/// The mode of a runner that is started without `--sme`; the build decides.
SmeMode default_sme_mode();

/// Reports on `requested`, which must be the mode that `--sme` named when the process started.
/// Throws RunnerError (kSmeMode) when this CPU, operating system or build cannot give it.
SmeReport require_sme_mode(SmeMode requested);

}  // namespace etprof
