#pragma once

#include <executorch/devtools/etdump/etdump_flatcc.h>

namespace etprof {

/// The ETDump generator, with the executions of each phase in event blocks of their own name.
class PhaseTracer : public executorch::etdump::ETDumpGen {
 public:
    /// `name` is what the blocks of the executions from now on are called; it must outlive them.
    void set_phase(const char* name) { phase_ = name; }

    void create_event_block(const char* name) override;

 private:
    const char* phase_ = "Execute";
};

}  // namespace etprof
