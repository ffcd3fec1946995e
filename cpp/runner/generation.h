#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loaded_method.h"
#include "options.h"
#include "program_description.h"

namespace etprof {

/// A method that maps token ids and positions to the scores of the next token.
struct TokenMethod {
    const MethodDescription* description = nullptr;
    /// Takes one position for each token; else one in all, that of the first token.
    bool has_position_each = false;
    /// Tokens of one execution; the upper bound where the shape is dynamic.
    std::size_t most_tokens = 0;

    const std::string& name() const { return description->name; }
};

/// What to generate from, with which methods; checked against what the program tells of itself.
struct GenerationPlan {
    /// The same method as `decode` in a program that has only one.
    TokenMethod prefill;
    TokenMethod decode;
    /// Entries of the key-value cache, where the program tells.
    std::optional<std::uint64_t> cache_tokens;

    bool has_two_methods() const { return prefill.description != decode.description; }
};

/// One generation from the first prompt token to the last new one; times in ns.
struct Repetition {
    std::chrono::system_clock::time_point started_at;
    /// Until the last execution on the prompt had returned.
    std::uint64_t prefill_ns = 0;
    /// Until the first new token was known.
    std::uint64_t first_token_ns = 0;
    /// From each new token to the next: one fewer than there are tokens.
    std::vector<std::uint64_t> token_latency_ns;
    /// Of it, choosing tokens by their scores.
    std::uint64_t sampling_ns = 0;
    /// Until the last new token was known.
    std::uint64_t total_ns = 0;
};

/// Generates tokens greedily, again and again from an empty cache.
class Generation {
 public:
    /// Plans what --generate asks for. Throws RunnerError: kMethod for a method that is missing or
    /// is no language model's, kInput for a prompt that the program cannot take. Both arguments
    /// must outlive this.
    Generation(const Options& options, const ProgramDescription& program);
    ~Generation();

    /// Once, before repeat(), when the methods of the plan are loaded.
    void bind(LoadedModule& module);
    /// Its executions are called `phase`, but "Prefill" when they read more of the prompt at once.
    const Repetition& repeat(const char* phase);

    const GenerationPlan& plan() const { return plan_; }
    /// Tokens of the prompt that the prefill method takes at once; decode steps take the others.
    std::size_t prefilled_tokens() const { return prefilled_tokens_; }
    const std::vector<std::int64_t>& tokens() const { return tokens_; }
    /// All of them, whether timed or not.
    const std::vector<Repetition>& repetitions() const { return repetitions_; }

 private:
    class TokenFeeder;

    void feed(TokenFeeder& feeder, const std::int64_t* tokens, std::size_t count,
              std::size_t position);
    void feed_prompt(const char* phase);
    void take_token(std::int64_t token, std::size_t index);

    const Options& options_;
    GenerationPlan plan_;
    LoadedModule* module_ = nullptr;
    std::unique_ptr<TokenFeeder> decode_;
    /// Null where `decode_` does it all.
    std::unique_ptr<TokenFeeder> prefill_;
    /// The one that was fed last.
    TokenFeeder* last_ = nullptr;
    std::size_t prefilled_tokens_ = 0;
    std::vector<std::int64_t> tokens_;
    std::vector<Repetition> repetitions_;
};

}  // namespace etprof
