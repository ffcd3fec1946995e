#include <executorch/runtime/core/event_tracer.h>

#include "kernel_trace/kernel_trace.h"

namespace etprof {

std::unique_ptr<KernelTrace> make_kernel_trace() { return nullptr; }

}  // namespace etprof
