#pragma once

#include "sme_mode/sme_mode.h"

namespace etprof {

/// require_sme_mode for the platform that this is built for: one source file each.
SmeReport require_on_platform(SmeMode requested);

}  // namespace etprof
