// Processor families without SME: nothing to switch.

#include "sme_mode/cpu_table.h"

namespace etprof {

CpuTable read_cpu_table() { return {}; }

void apply_sme_mode(int /*count*/, char** /*words*/) {}

}  // namespace etprof
