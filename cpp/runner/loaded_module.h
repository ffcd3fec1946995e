#pragma once

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "inputs.h"
#include "options.h"
#include "outputs.h"
#include "phase_tracer.h"
#include "program_description.h"

namespace etprof {

/// What ExecuTorch said first, for it names the cause; else the error's name.
std::string reason_for(executorch::runtime::Error error);

/// A tensor over `bytes`, which must outlive it.
executorch::extension::TensorPtr make_tensor(const ValueDescription& value,
                                             const AlignedBuffer& bytes);

/// A program in memory, whose failures are RunnerErrors; and access to what Module keeps to itself.
class LoadedModule : public executorch::extension::Module {
 public:
    using EValue = executorch::runtime::EValue;

    /// `phases` is `tracer` when it makes an ETDump, else null. With `share_arenas` all methods
    /// work in the same memory: what one of them leaves in a shared buffer, the next one finds.
    LoadedModule(const Options& options, std::unique_ptr<executorch::runtime::EventTracer> tracer,
                 PhaseTracer* phases, bool share_arenas = false);

    /// Null unless an ETDump is made.
    PhaseTracer* tracer() const { return phases_; }

    void require_program();
    void require_method(const std::string& name);
    /// The method's inputs before any were set: the values that the export fixed.
    std::vector<EValue> exported_inputs(const MethodDescription& method);
    /// Gives memory to the outputs for which the program planned none.
    void bind_outputs(const MethodDescription& method);
    /// Throws RunnerError when an execution of `method` failed, or left no room in the ETDump.
    void require_executed(executorch::runtime::Error error, const std::string& method) const;

    /// Only with an ETDump, once, after the last execution.
    EtdumpBytes take_etdump();

    std::vector<EValue> inputs;
    /// What the tensors among `inputs`, and unplanned outputs, live in.
    std::vector<executorch::extension::TensorPtr> tensors;

 private:
    const Options& options_;
    PhaseTracer* phases_;
    std::vector<AlignedBuffer> output_buffers_;
};

}  // namespace etprof
