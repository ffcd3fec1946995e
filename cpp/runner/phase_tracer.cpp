#include "phase_tracer.h"

#include <string_view>

namespace etprof {

void PhaseTracer::create_event_block(const char* name) {
    const bool is_execution = std::string_view(name) == "Execute";
    ETDumpGen::create_event_block(is_execution ? phase_ : name);
}

}  // namespace etprof
