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

    /// Once, before repeat(), when the methods of the plan are loaded.
    void bind(LoadedModule& module);
    /// Its executions are called `phase`, but "Prefill" when they read more of the prompt at once.
    const Repetition& repeat(const char* phase);

    /// Reads the prompt; the same method as decode() in a program that has only one.
    const MethodDescription& prefill() const { return *prefill_method_; }
    /// Adds a token.
    const MethodDescription& decode() const { return *decode_method_; }
    bool has_two_methods() const { return prefill_method_ != decode_method_; }
    /// Entries of the key-value cache, where the program tells.
    std::optional<std::uint64_t> cache_tokens() const { return cache_tokens_; }
    /// Tokens of the prompt that the prefill method takes at once; decode steps take the others.
    std::size_t prefilled_tokens() const { return prefilled_tokens_; }
    const std::vector<std::int64_t>& tokens() const { return tokens_; }
    /// All of them, whether timed or not.
    const std::vector<Repetition>& repetitions() const { return repetitions_; }

 private:
    class TokenFeeder;

    TokenFeeder& feed_prompt(const char* phase);
    void take_token(std::int64_t token, std::size_t index);

    const Options& options_;
    const MethodDescription* prefill_method_;
    const MethodDescription* decode_method_;
    std::optional<std::uint64_t> cache_tokens_;
    LoadedModule* module_ = nullptr;
    std::shared_ptr<TokenFeeder> decode_;
    /// The same as `decode_` where there is one method.
    std::shared_ptr<TokenFeeder> prefill_;
    std::size_t prefilled_tokens_ = 0;
    std::vector<std::int64_t> tokens_;
    std::vector<Repetition> repetitions_;
};

}  // namespace etprof
