#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace etprof {

/// Which SME microkernels the CPU detection of this process may see.
enum class SmeMode {
    kAutomatic,  ///< all that the CPU has
    kSme2,       ///< the same, but only on a CPU with SME2
    kSme1,       ///< FEAT_SME without SME2 and later
    kOff,        ///< none
};

/// The mode cannot be given by this CPU, operating system or build; names the way out.
class SmeModeError : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

/// What was asked for and what came of it.
struct SmeReport {
    SmeMode requested;
    SmeMode in_force;                         ///< kSme2, kSme1 or kOff, never kAutomatic
    std::vector<std::string> cpu_features;    ///< SME features of the CPU
    std::vector<std::string> shown_features;  ///< those that XNNPACK could see
};

/// Returns the mode's name as `--sme` takes it: auto, sme2, sme1 or off.
const char* to_string(SmeMode mode);

/// Returns the mode of that name, or nothing.
std::optional<SmeMode> parse_sme_mode(std::string_view name);

/// Returns the mode of a runner that is started without `--sme`: the build's default.
SmeMode default_sme_mode();

/// Makes sure that `requested` is in force and reports it; throws SmeModeError otherwise.
///
/// The mode itself is decided before main: libraries detect the CPU in their static
/// constructors, so a function in the executable's .preinit_array reads `--sme` first.
SmeReport require_sme_mode(SmeMode requested);

}  // namespace etprof
