#include "generation.h"

#include <algorithm>
#include <cmath>

#include "messages.h"
#include "process.h"

namespace etprof {
namespace {

using executorch::aten::BFloat16;
using executorch::aten::Half;

bool is_index(const ValueDescription& value) {
    return value.is_tensor() && (value.dtype == ScalarType::Long || value.dtype == ScalarType::Int);
}

bool is_score(const ValueDescription& value) {
    return value.is_tensor() && !value.shape.empty() &&
           (value.dtype == ScalarType::Float || value.dtype == ScalarType::Half ||
            value.dtype == ScalarType::BFloat16);
}

/// Returns `method` if it maps token ids and positions to the scores of the next token.
const MethodDescription* require_token_method(const MethodDescription& method) {
    const auto refuse_unless = [&method](bool holds, const std::string& problem) {
        if (!holds) {
            throw RunnerError(ExitCode::kMethod,
                              "'" + method.name + "' cannot generate tokens (" + problem + ")",
                              "export it with a key-value cache, so that it takes token ids and "
                              "positions and gives scores");
        }
    };
    refuse_unless(method.inputs.size() == 2 &&
                      std::all_of(method.inputs.begin(), method.inputs.end(), is_index),
                  "it does not take two tensors of integers");
    refuse_unless(!method.outputs.empty() && is_score(method.outputs.front()),
                  "its first output is no tensor of float32, float16 or bfloat16");
    const ValueDescription& tokens = method.inputs[0];
    const ValueDescription& positions = method.inputs[1];
    const std::size_t most = count_elements(tokens.shape);
    const std::size_t places = count_elements(positions.shape);
    refuse_unless(!tokens.shape.empty() && most == static_cast<std::size_t>(tokens.shape.back()),
                  "its tokens have the shape " + shape_text(tokens.shape));
    refuse_unless(!positions.shape.empty() && (places == 1 || places == most),
                  "its positions have the shape " + shape_text(positions.shape));
    return &method;
}

/// What a method without inputs says; nothing when there is none of that name.
std::optional<std::uint64_t> read_constant(const ProgramDescription& program,
                                           const std::string& name) {
    const MethodDescription* const method = program.find_method(name);
    if (method == nullptr || !method->is_constant() || method->outputs[0].kind != "int") {
        return std::nullopt;
    }
    clear_runtime_errors();
    executorch::extension::Module module(program.path,
                                         executorch::extension::Module::LoadMode::Mmap);
    const auto result = module.execute(name);
    if (!result.ok() || result->at(0).toInt() < 1) {
        throw RunnerError(ExitCode::kModel, "'" + name + "' of " + program.path + " tells nothing",
                          "export the program again");
    }
    return static_cast<std::uint64_t>(result->at(0).toInt());
}

void require_known_tokens(const MethodDescription& decode, const Options& options) {
    const std::int64_t vocabulary = decode.outputs[0].shape.back();
    for (const std::int64_t id : options.prompt_tokens) {
        if (id < 0 || id >= vocabulary) {
            throw RunnerError(ExitCode::kInput,
                              "--prompt-tokens has the id " + std::to_string(id) +
                                  ", but the model knows " + std::to_string(vocabulary) + " tokens",
                              "give ids from 0 to " + std::to_string(vocabulary - 1) +
                                  ", made by the model's own tokenizer");
        }
    }
}

/// The last new token is never read, so it needs no place.
void require_room(std::optional<std::uint64_t> cache_tokens, const Options& options) {
    const std::uint64_t needed = options.prompt_tokens.size() + options.new_tokens - 1;
    if (needed > cache_tokens.value_or(needed)) {
        throw RunnerError(ExitCode::kInput,
                          std::to_string(options.prompt_tokens.size()) + " prompt tokens and " +
                              std::to_string(options.new_tokens) + " new ones need " +
                              std::to_string(needed) + " places, but the cache has " +
                              std::to_string(*cache_tokens),
                          "shorten the prompt, or lower --generate");
    }
}

/// ExecuTorch plans the buffers that methods share in a memory of their own, the second one.
void require_shared_cache(const MethodDescription& prefill, const MethodDescription& decode,
                          const std::string& path) {
    const auto& one = prefill.planned_buffers_bytes;
    const auto& other = decode.planned_buffers_bytes;
    if (one.size() < 2 || other.size() < 2 || one[1] == 0 || one[1] != other[1]) {
        throw RunnerError(ExitCode::kMethod,
                          "'" + prefill.name + "' and '" + decode.name + "' of " + path +
                              " do not share their key-value cache",
                          "export it with share_mutable_buffers=True, as `etprof export` does, or "
                          "feed the prompt by decode steps: --prefill-method " +
                              decode.name);
    }
}

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
std::optional<std::size_t> find_largest(const void* data, std::size_t count) {
    const T* scores = static_cast<const T*>(data);
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

}  // namespace

/// Feeds tokens to one loaded method and reads its scores.
class Generation::TokenFeeder {
 public:
    TokenFeeder(LoadedModule& module, const MethodDescription& method)
        : method_(method),
          loaded_(module, method),
          token_bytes_(method.inputs[0].size_bytes),
          position_bytes_(method.inputs[1].size_bytes) {}

    /// Of one execution; the upper bound where the shape is dynamic.
    std::size_t most_tokens() const { return count_elements(method_.inputs[0].shape); }

    /// The most tokens of a prompt of `count` that one execution can take; 0 when it takes none. To
    /// be asked before feed(), which binds tensors of its own.
    std::size_t most_of(std::size_t count) const {
        return count >= most_tokens() ? most_tokens() : loaded_.is_fixed(0) ? 0 : count;
    }

    /// Executes the method on `count` tokens that stand at `position` and after.
    void feed(const std::int64_t* tokens, std::size_t count, std::size_t position) {
        // One position for each token; else one in all, that of the first token.
        const bool has_position_each = count_elements(method_.inputs[1].shape) != 1;
        const std::size_t places = has_position_each ? count : 1;
        if (count != bound_) {
            bind(0, count, token_bytes_);
            bind(1, places, position_bytes_);
            bound_ = count;
        }
        for (std::size_t i = 0; i < count; ++i) {
            write_index(token_bytes_, method_.inputs[0].dtype, i, tokens[i]);
        }
        for (std::size_t i = 0; i < places; ++i) {
            write_index(position_bytes_, method_.inputs[1].dtype, i,
                        static_cast<std::int64_t>(position + i));
        }
        loaded_.set_inputs();
        loaded_.require_executed(loaded_.execute());
    }

    /// The id with the highest score after the last token that was fed; the lowest of equal ones.
    std::int64_t best_token() {
        const auto& scores = loaded_.take_outputs()[0].toTensor();
        const auto vocabulary = static_cast<std::size_t>(scores.sizes().back());
        // Some programs score every token that they are fed; the last row is the last token's.
        const std::size_t skipped = static_cast<std::size_t>(scores.numel()) - vocabulary;
        const auto* last = static_cast<const unsigned char*>(scores.const_data_ptr()) +
                           skipped * static_cast<std::size_t>(scores.element_size());
        const ScalarType dtype = scores.scalar_type();
        const auto best = dtype == ScalarType::Half       ? find_largest<Half>(last, vocabulary)
                          : dtype == ScalarType::BFloat16 ? find_largest<BFloat16>(last, vocabulary)
                                                          : find_largest<float>(last, vocabulary);
        if (!best) {
            throw RunnerError(ExitCode::kExecution, "'" + method_.name + "' scores tokens with NaN",
                              "export it in float32, or keep its values within float16's range");
        }
        return static_cast<std::int64_t>(*best);
    }

 private:
    void bind(std::size_t index, std::size_t count, const AlignedBuffer& bytes) {
        ValueDescription value = method_.inputs[index];
        value.shape.back() = static_cast<std::int32_t>(count);
        loaded_.bind(index, value, bytes);
    }

    const MethodDescription& method_;
    LoadedMethod loaded_;
    /// Tokens of the tensors that are bound now.
    std::size_t bound_ = 0;
    AlignedBuffer token_bytes_;
    AlignedBuffer position_bytes_;
};

Generation::Generation(const Options& options, const ProgramDescription& program)
    : options_(options) {
    const auto find = [&program](const std::string& name, const char* flag) {
        return require_token_method(program.require_method(name, flag));
    };
    const bool has_decode = program.find_method("decode") != nullptr;
    decode_method_ =
        find(options.decode_method.value_or(has_decode ? "decode" : "forward"), "--decode-method");
    const bool has_prefill = options.prefill_method || program.find_method("prefill") != nullptr;
    prefill_method_ = has_prefill
                          ? find(options.prefill_method.value_or("prefill"), "--prefill-method")
                          : decode_method_;
    cache_tokens_ = read_constant(program, "get_max_context_len");
    if (!cache_tokens_) {
        cache_tokens_ = read_constant(program, "get_max_seq_len");
    }
    require_known_tokens(decode(), options);
    require_room(cache_tokens_, options);
    if (has_two_methods()) {
        require_shared_cache(prefill(), decode(), program.path);
    }
}

void Generation::bind(LoadedModule& module) {
    module_ = &module;
    decode_ = std::make_shared<TokenFeeder>(module, decode());
    prefill_ = has_two_methods() ? std::make_shared<TokenFeeder>(module, prefill()) : decode_;
    if (decode_->most_of(1) != 1) {
        throw RunnerError(ExitCode::kMethod,
                          "'" + decode().name + "' takes " +
                              std::to_string(decode_->most_tokens()) + " tokens at once, not one",
                          "export a method that adds one token, or with dynamic shapes");
    }
    // A step of one token is decoding, whichever method is called for it.
    const std::size_t taken = prefill_->most_of(options_.prompt_tokens.size());
    prefilled_tokens_ = taken == 1 && !has_two_methods() ? 0 : taken;
}

const Repetition& Generation::repeat(const char* phase) {
    Repetition repetition;
    repetition.token_latency_ns.reserve(options_.new_tokens - 1);
    repetition.started_at = std::chrono::system_clock::now();
    const auto begin = Clock::now();
    // Told after the clock was read, as each token is, so that readers see the same intervals.
    if (options_.stream_tokens) {
        print("repetition " + std::to_string(repetitions_.size()) + "\n");
    }
    TokenFeeder* last = &feed_prompt(phase);
    auto scored = Clock::now();
    repetition.prefill_ns = elapsed_ns(begin, scored);
    auto last_token = begin;
    for (std::size_t index = 0;; ++index) {
        const std::int64_t token = last->best_token();
        const auto now = Clock::now();
        repetition.sampling_ns += elapsed_ns(scored, now);
        if (index == 0) {
            repetition.first_token_ns = elapsed_ns(begin, now);
        } else {
            repetition.token_latency_ns.push_back(elapsed_ns(last_token, now));
        }
        last_token = now;
        take_token(token, index);
        if (index + 1 == options_.new_tokens) {
            repetition.total_ns = elapsed_ns(begin, now);
            return repetitions_.emplace_back(std::move(repetition));
        }
        decode_->feed(&token, 1, options_.prompt_tokens.size() + index);
        last = decode_.get();
        scored = Clock::now();
    }
}

/// The prefill method takes as much as it can; decode steps take the rest. Nothing is padded:
/// what the method would compute for padding is not the model's answer to the prompt. Returns the
/// one that was fed last.
Generation::TokenFeeder& Generation::feed_prompt(const char* phase) {
    const std::vector<std::int64_t>& prompt = options_.prompt_tokens;
    if (prefilled_tokens_ > 0) {
        module_->set_phase("Prefill");
        prefill_->feed(prompt.data(), prefilled_tokens_, 0);
    }
    module_->set_phase(phase);
    for (std::size_t position = prefilled_tokens_; position < prompt.size(); ++position) {
        decode_->feed(&prompt[position], 1, position);
    }
    return prefilled_tokens_ < prompt.size() ? *decode_ : *prefill_;
}

/// Every repetition starts from an empty cache, so all have to say the same.
void Generation::take_token(std::int64_t token, std::size_t index) {
    if (options_.stream_tokens) {
        print(std::to_string(token) + "\n");
    }
    if (repetitions_.empty()) {
        tokens_.push_back(token);
    } else if (token != tokens_[index]) {
        throw RunnerError(ExitCode::kExecution,
                          "repetition " + std::to_string(repetitions_.size()) + " has the token " +
                              std::to_string(token) + " at place " + std::to_string(index) +
                              ", where the first had " + std::to_string(tokens_[index]),
                          "export the program so that position 0 starts anew; it keeps more than "
                          "its cache");
    }
}

}  // namespace etprof
