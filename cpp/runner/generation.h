#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "generation_plan.h"
#include "model_session.h"
#include "options.h"

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

/// What all repetitions have in common, and the timed ones.
struct GenerationReport {
    std::chrono::system_clock::time_point load_started_at;
    std::chrono::system_clock::time_point load_ended_at;
    /// Tokens of the prompt that the prefill method took at once; decode steps took the others.
    std::size_t prefilled_tokens = 0;
    std::vector<std::int64_t> tokens;
    std::vector<Repetition> repetitions;
};

/// Generates tokens greedily, again and again from an empty cache.
///
/// Use: load(), run(), then what is asked for. Every failure is a RunnerError. In measurements(),
/// an inference is a whole repetition.
class GenerationSession {
 public:
    /// Both arguments must outlive the session. Sets the size of the process's thread pool.
    GenerationSession(const Options& options, const GenerationPlan& plan);
    ~GenerationSession();

    void load();
    void run();

    const Measurements& measurements() const { return measurements_; }
    const GenerationPlan& plan() const { return plan_; }
    const GenerationReport& report() const { return report_; }
    /// Only with --etdump, once, after run(). Prefill executions are in blocks called "Prefill".
    EtdumpBytes take_etdump();

 private:
    class Executors;
    class TokenClock;

    Repetition repeat(const char* phase);
    void feed_prompt(const char* phase);
    void take_token(std::int64_t token, std::size_t index);
    std::int64_t choose(TokenClock& clock);
    void set_phase(const char* phase);

    const Options& options_;
    const GenerationPlan& plan_;
    std::unique_ptr<LoadedModule> module_;
    std::unique_ptr<Executors> executors_;
    std::size_t repetitions_ = 0;
    Measurements measurements_;
    GenerationReport report_;
};

}  // namespace etprof
