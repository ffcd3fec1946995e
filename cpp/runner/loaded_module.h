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
    /// Gives `inputs` to the method, as it needs before every execution: the program's own plan may
    /// use the memory of an input again once it was read. Throws RunnerError (kExecution).
    void set_inputs(const std::string& method);
    /// One execution and nothing else: neither inputs nor outputs are touched.
    executorch::runtime::Error execute_alone(const std::string& method) {
        return methods_.at(method).method->execute();
    }
    /// The outputs of the last execution, as an application takes them; the values stay the
    /// method's.
    const std::vector<EValue>& take_outputs(const std::string& method);
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
    std::vector<EValue> outputs_;
};

}  // namespace etprof
