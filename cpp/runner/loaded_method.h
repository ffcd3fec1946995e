#pragma once

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "options.h"
#include "phase_tracer.h"
#include "program_description.h"
#include "values.h"

namespace etprof {

/// A program in memory, whose failures are RunnerErrors; and access to what Module keeps to itself.
class LoadedModule : public executorch::extension::Module {
 public:
    /// `phases` is `tracer` when it makes an ETDump, else null. With `share_arenas` all methods
    /// work in the same memory: what one of them leaves in a shared buffer, the next one finds.
    LoadedModule(const Options& options, std::unique_ptr<executorch::runtime::EventTracer> tracer,
                 PhaseTracer* phases, bool share_arenas);

    void require_program();
    void require_method(const std::string& name);
    /// One that require_method has loaded.
    executorch::runtime::Method& method(const std::string& name) {
        return *methods_.at(name).method;
    }
    /// Throws RunnerError when an execution of `method` failed, or left no room in the ETDump.
    void require_executed(executorch::runtime::Error error, const std::string& method) const;

    /// What the ETDump calls the executions from now on; nothing without one.
    void set_phase(const char* name) {
        if (phases_ != nullptr) {
            phases_->set_phase(name);
        }
    }
    /// Makes ready for an execution what would else be part of it.
    void open_block() {
        if (phases_ != nullptr) {
            phases_->open_block();
        }
    }
    /// Only with an ETDump, once, after the last execution.
    EtdumpBytes take_etdump();

 private:
    const Options& options_;
    PhaseTracer* phases_;
};

/// One method of a loaded program, and what it is given.
class LoadedMethod {
 public:
    using EValue = executorch::runtime::EValue;

    /// The method must be loaded in `module`; both arguments must outlive this. Gives memory to the
    /// outputs for which the program planned none.
    LoadedMethod(LoadedModule& module, const MethodDescription& description);

    /// Whether the shape of this input, a tensor, is fixed.
    bool is_fixed(std::size_t input) const;
    /// From now on input `index` is the tensor over `bytes`, which must outlive its use.
    void bind(std::size_t index, const ValueDescription& value, const AlignedBuffer& bytes);
    /// Gives the method its inputs, as it needs before every execution: the program's own plan may
    /// use the memory of an input again once it was read.
    void set_inputs();
    /// One execution and nothing else: neither inputs nor outputs are touched.
    executorch::runtime::Error execute() { return method_.execute(); }
    void require_executed(executorch::runtime::Error error) const {
        module_.require_executed(error, description_.name);
    }
    /// The outputs of the last execution, as an application takes them; the values stay the
    /// method's.
    const std::vector<EValue>& take_outputs();

    const std::vector<EValue>& inputs() const { return inputs_; }
    /// The inputs where the method works on them: where a program plans memory for one, a copy.
    std::vector<EValue> inner_inputs() const;

 private:
    LoadedModule& module_;
    const MethodDescription& description_;
    executorch::runtime::Method& method_;
    std::vector<EValue> inputs_;
    /// What the tensors among `inputs_`, and unplanned outputs, live in.
    std::vector<executorch::extension::TensorPtr> tensors_;
    std::vector<AlignedBuffer> output_buffers_;
    std::vector<EValue> outputs_;
};

}  // namespace etprof
