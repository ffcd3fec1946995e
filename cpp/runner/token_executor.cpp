#include "token_executor.h"

#include <cmath>
#include <cstring>

#include "runner_error.h"

namespace etprof {
namespace {

using executorch::aten::BFloat16;
using executorch::aten::Half;
using executorch::aten::TensorShapeDynamism;
using executorch::runtime::Error;

/// Writes `value` as element `index` of int32 or int64 memory.
void write_index(const AlignedBuffer& bytes, ScalarType dtype, std::size_t index,
                 std::int64_t value) {
    if (dtype == ScalarType::Int) {
        reinterpret_cast<std::int32_t*>(bytes.data())[index] = static_cast<std::int32_t>(value);
    } else {
        reinterpret_cast<std::int64_t*>(bytes.data())[index] = value;
    }
}

/// Place of the largest of `count` numbers, the first of equal ones; nothing beside a NaN.
template <typename T>
std::optional<std::size_t> find_largest(const T* scores, std::size_t count) {
    std::size_t best = 0;
    float largest = static_cast<float>(scores[0]);
    for (std::size_t i = 0; i < count; ++i) {
        const float score = static_cast<float>(scores[i]);
        if (std::isnan(score)) {
            return std::nullopt;
        }
        if (score > largest) {
            best = i;
            largest = score;
        }
    }
    return best;
}

std::optional<std::size_t> find_largest(const void* scores, std::size_t count, ScalarType dtype) {
    switch (dtype) {
        case ScalarType::Half:
            return find_largest(static_cast<const Half*>(scores), count);
        case ScalarType::BFloat16:
            return find_largest(static_cast<const BFloat16*>(scores), count);
        default:
            return find_largest(static_cast<const float*>(scores), count);
    }
}

}  // namespace

TokenExecutor::TokenExecutor(LoadedModule& module, const TokenMethod& method)
    : module_(module),
      method_(method),
      token_bytes_(method.description->inputs[0].size_bytes),
      position_bytes_(method.description->inputs[1].size_bytes),
      tensors_(2) {
    inputs_ = module.exported_inputs(*method.description);
    is_dynamic_ = inputs_[0].toTensor().shape_dynamism() != TensorShapeDynamism::STATIC;
    module.bind_outputs(*method.description);
}

bool TokenExecutor::takes(std::size_t count) const {
    return count == method_.most_tokens || (is_dynamic_ && count < method_.most_tokens);
}

std::size_t TokenExecutor::most_of(std::size_t count) const {
    if (count >= method_.most_tokens) {
        return method_.most_tokens;
    }
    return is_dynamic_ ? count : 0;
}

void TokenExecutor::bind_input(std::size_t index, std::size_t count, const AlignedBuffer& bytes) {
    ValueDescription value = method_.description->inputs[index];
    value.shape.back() = static_cast<std::int32_t>(count);
    tensors_[index] = make_tensor(value, bytes);
    inputs_[index] = LoadedModule::EValue(*tensors_[index]);
}

void TokenExecutor::bind(std::size_t count) {
    if (count == bound_) {
        return;
    }
    bind_input(0, count, token_bytes_);
    bind_input(1, method_.positions == PositionForm::kEach ? count : 1, position_bytes_);
    bound_ = count;
}

void TokenExecutor::feed(const std::int64_t* tokens, std::size_t count, std::size_t position) {
    bind(count);
    const std::vector<ValueDescription>& values = method_.description->inputs;
    const std::size_t positions = method_.positions == PositionForm::kEach ? count : 1;
    for (std::size_t i = 0; i < count; ++i) {
        write_index(token_bytes_, values[0].dtype, i, tokens[i]);
    }
    for (std::size_t i = 0; i < positions; ++i) {
        write_index(position_bytes_, values[1].dtype, i, static_cast<std::int64_t>(position + i));
    }
    const auto outputs = module_.execute(method_.name(), inputs_);
    module_.require_executed(outputs.error(), method_.name());
    scores_ = outputs->at(0);
}

std::int64_t TokenExecutor::best_token() const {
    const auto& scores = scores_.toTensor();
    const auto vocabulary = static_cast<std::size_t>(scores.sizes().back());
    // Some programs score every token that they are fed; the last row is the last token's.
    const std::size_t skipped = static_cast<std::size_t>(scores.numel()) - vocabulary;
    const auto* last = static_cast<const unsigned char*>(scores.const_data_ptr()) +
                       skipped * static_cast<std::size_t>(scores.element_size());
    const auto best = find_largest(last, vocabulary, scores.scalar_type());
    if (!best) {
        throw RunnerError(ExitCode::kExecution, "'" + method_.name() + "' scores tokens with NaN",
                          "export it in float32, or keep its values within float16's range");
    }
    return static_cast<std::int64_t>(*best);
}

}  // namespace etprof
