#pragma once

#include <cstdint>

#include "sme_mode/sme_mode.h"

namespace etprof {

/// The mode that `--sme` named on this process's command line, read before main.
SmeMode mode_before_main();

/// The kernel's own answer for an entry of the auxiliary vector; 0 when it has none.
std::uint64_t real_auxiliary_value(unsigned long type);

/// What this process's getauxval answers for that entry in the mode in force.
std::uint64_t shown_auxiliary_value(unsigned long type);

/// How often anyone asked getauxval for AT_HWCAP2; 0 means that nobody saw the mode.
int hwcap2_question_count();

}  // namespace etprof
