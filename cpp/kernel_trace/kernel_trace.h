#pragma once

#include <executorch/runtime/core/event_tracer.h>

#include <memory>

namespace etprof {

class JsonWriter;

/// Which microkernels ran, how often and in which operator, and when each operator ran. This one
/// watches nothing, for runs without --kernel-trace.
///
/// Use from one thread: begin_load(), end_load(), then begin_execution() and end_execution()
/// around each inference, then write(). The event tracer has to be given to the program before.
class KernelTrace {
 public:
    virtual ~KernelTrace() = default;

    /// The event tracer for the program, if it needs one; once.
    virtual std::unique_ptr<executorch::runtime::EventTracer> take_event_tracer() {
        return nullptr;
    }
    virtual void begin_load() {}
    virtual void end_load() {}
    /// `phase` is First, Warmup or Execute.
    virtual void begin_execution(const char* /*phase*/) {}
    virtual void end_execution() {}
    /// Writes members of the current JSON object: kernels, labels, load, executions. Nothing is
    /// counted together or aligned: etprof's kernel_trace.py does that.
    virtual void write(JsonWriter& /*json*/) {}
};

/// Returns nothing when this executable has no trace: then a weak definition in the runner answers.
std::unique_ptr<KernelTrace> make_kernel_trace();

}  // namespace etprof
