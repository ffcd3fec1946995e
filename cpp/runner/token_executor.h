#pragma once

#include <executorch/extension/tensor/tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "generation_plan.h"
#include "inputs.h"
#include "loaded_module.h"

namespace etprof {

/// Feeds tokens to one loaded method and reads its scores.
class TokenExecutor {
 public:
    /// The method must be loaded in `module`; both arguments must outlive this.
    TokenExecutor(LoadedModule& module, const TokenMethod& method);

    /// Whether one execution can take `count` tokens.
    bool takes(std::size_t count) const;
    /// The most tokens of a prompt of `count` that one execution can take; 0 when it takes none.
    std::size_t most_of(std::size_t count) const;
    /// Executes the method on `count` tokens that stand at `position` and after.
    void feed(const std::int64_t* tokens, std::size_t count, std::size_t position);
    /// The id with the highest score after the last token that was fed; the lowest of equal ones.
    std::int64_t best_token() const;

 private:
    void bind(std::size_t count);
    void bind_input(std::size_t index, std::size_t count, const AlignedBuffer& bytes);

    LoadedModule& module_;
    const TokenMethod& method_;
    bool is_dynamic_;
    /// Tokens of the tensors that are bound now.
    std::size_t bound_ = 0;
    AlignedBuffer token_bytes_;
    AlignedBuffer position_bytes_;
    std::vector<executorch::extension::TensorPtr> tensors_;
    std::vector<LoadedModule::EValue> inputs_;
    LoadedModule::EValue scores_;
};

}  // namespace etprof
