#include "generation.h"

#include <string>
#include <utility>

#include "clock.h"
#include "loaded_module.h"
#include "memory.h"
#include "phase_tracer.h"
#include "runner_error.h"
#include "runtime_log.h"
#include "standard_output.h"
#include "thread_pool.h"
#include "token_executor.h"

namespace etprof {
namespace {

using std::chrono::system_clock;

std::unique_ptr<LoadedModule> make_module(const Options& options, const GenerationPlan& plan) {
    auto tracer = options.etdump_path ? std::make_unique<PhaseTracer>(nullptr) : nullptr;
    PhaseTracer* phases = tracer.get();
    return std::make_unique<LoadedModule>(options, std::move(tracer), phases,
                                          plan.has_two_methods());
}

}  // namespace

/// The methods of the plan, ready to be fed.
class GenerationSession::Executors {
 public:
    Executors(LoadedModule& module, const GenerationPlan& plan) : decode_(module, plan.decode) {
        if (plan.has_two_methods()) {
            prefill_ = std::make_unique<TokenExecutor>(module, plan.prefill);
        }
    }

    TokenExecutor& decode() { return decode_; }
    TokenExecutor& prefill() { return prefill_ == nullptr ? decode_ : *prefill_; }
    /// The one that was fed last.
    TokenExecutor* last = nullptr;

 private:
    TokenExecutor decode_;
    std::unique_ptr<TokenExecutor> prefill_;
};

/// Turns the moments of one repetition into its latencies.
class GenerationSession::TokenClock {
 public:
    explicit TokenClock(std::uint64_t new_tokens) {
        repetition_.token_latency_ns.reserve(new_tokens - 1);
        repetition_.started_at = system_clock::now();
        begin_ = Clock::now();
    }

    void end_prefill() { repetition_.prefill_ns = elapsed_ns(begin_, Clock::now()); }

    /// `sampling_began`: when the scores were there.
    void end_token(Clock::time_point sampling_began) {
        const auto now = Clock::now();
        repetition_.sampling_ns += elapsed_ns(sampling_began, now);
        repetition_.total_ns = elapsed_ns(begin_, now);
        if (repetition_.first_token_ns == 0) {
            repetition_.first_token_ns = repetition_.total_ns;
        } else {
            repetition_.token_latency_ns.push_back(elapsed_ns(last_token_, now));
        }
        last_token_ = now;
    }

    Repetition take() { return std::move(repetition_); }

 private:
    Repetition repetition_;
    Clock::time_point begin_;
    Clock::time_point last_token_;
};

GenerationSession::GenerationSession(const Options& options, const GenerationPlan& plan)
    : options_(options), plan_(plan) {
    measurements_.threads_in_force = configure_thread_pool(options.threads);
    module_ = make_module(options, plan);
}

GenerationSession::~GenerationSession() = default;

void GenerationSession::load() {
    clear_runtime_errors();
    measurements_.rss_before_load_bytes = resident_bytes();
    report_.load_started_at = system_clock::now();
    const auto begin = Clock::now();
    module_->require_program();
    const auto program_loaded = Clock::now();
    module_->require_method(plan_.prefill.name());
    module_->require_method(plan_.decode.name());
    const auto methods_loaded = Clock::now();
    report_.load_ended_at = system_clock::now();
    measurements_.rss_after_load_bytes = resident_bytes();
    measurements_.program_load_ns = elapsed_ns(begin, program_loaded);
    measurements_.method_load_ns = elapsed_ns(program_loaded, methods_loaded);
    executors_ = std::make_unique<Executors>(*module_, plan_);
    if (!executors_->decode().takes(1)) {
        throw RunnerError(ExitCode::kMethod,
                          "'" + plan_.decode.name() + "' takes " +
                              std::to_string(plan_.decode.most_tokens) + " tokens at once, not one",
                          "export a method that adds one token, or with dynamic shapes");
    }
    // A step of one token is decoding, whichever method is called for it.
    const std::size_t taken = executors_->prefill().most_of(plan_.prompt.size());
    report_.prefilled_tokens = taken == 1 && !plan_.has_two_methods() ? 0 : taken;
}

void GenerationSession::run() {
    clear_runtime_errors();
    measurements_.clock = measure_clock();
    measurements_.first_inference_ns = repeat("First").total_ns;
    for (std::uint64_t i = 0; i < options_.warmup; ++i) {
        measurements_.warmup_latency_ns.push_back(repeat("Warmup").total_ns);
    }
    const auto least_ns = static_cast<std::uint64_t>(options_.min_seconds.value_or(0) * 1e9);
    const ConditionsWatch watch;
    for (std::uint64_t total_ns = 0;
         report_.repetitions.size() < options_.iterations || total_ns < least_ns;
         total_ns += measurements_.latency_ns.back()) {
        report_.repetitions.push_back(repeat("Execute"));
        measurements_.latency_ns.push_back(report_.repetitions.back().total_ns);
    }
    measurements_.conditions = watch.read();
    measurements_.peak_rss_bytes = peak_resident_bytes();
    measurements_.pss_bytes = proportional_bytes();
}

Repetition GenerationSession::repeat(const char* phase) {
    TokenClock clock(plan_.new_tokens);
    // Told after the clock was read, as each token is, so that readers see the same intervals.
    if (options_.generation.stream_tokens) {
        print("repetition " + std::to_string(repetitions_) + "\n");
    }
    feed_prompt(phase);
    clock.end_prefill();
    for (std::size_t index = 0;; ++index) {
        const std::int64_t token = choose(clock);
        take_token(token, index);
        if (index + 1 == plan_.new_tokens) {
            ++repetitions_;
            return clock.take();
        }
        executors_->decode().feed(&token, 1, plan_.prompt.size() + index);
        executors_->last = &executors_->decode();
    }
}

/// The prefill method takes as much as it can; decode steps take the rest. Nothing is padded:
/// what the method would compute for padding is not the model's answer to the prompt.
void GenerationSession::feed_prompt(const char* phase) {
    const std::vector<std::int64_t>& prompt = plan_.prompt;
    const std::size_t at_once = report_.prefilled_tokens;
    if (at_once > 0) {
        set_phase("Prefill");
        executors_->prefill().feed(prompt.data(), at_once, 0);
        executors_->last = &executors_->prefill();
    }
    set_phase(phase);
    for (std::size_t position = at_once; position < prompt.size(); ++position) {
        executors_->decode().feed(&prompt[position], 1, position);
        executors_->last = &executors_->decode();
    }
}

std::int64_t GenerationSession::choose(TokenClock& clock) {
    const auto begin = Clock::now();
    const std::int64_t token = executors_->last->best_token();
    clock.end_token(begin);
    return token;
}

/// Every repetition starts from an empty cache, so all have to say the same.
void GenerationSession::take_token(std::int64_t token, std::size_t index) {
    if (options_.generation.stream_tokens) {
        print(std::to_string(token) + "\n");
    }
    if (repetitions_ == 0) {
        report_.tokens.push_back(token);
        return;
    }
    if (token != report_.tokens[index]) {
        throw RunnerError(ExitCode::kExecution,
                          "repetition " + std::to_string(repetitions_) + " has the token " +
                              std::to_string(token) + " at place " + std::to_string(index) +
                              ", where the first had " + std::to_string(report_.tokens[index]),
                          "export the program so that position 0 starts anew; it keeps more than "
                          "its cache");
    }
}

void GenerationSession::set_phase(const char* phase) {
    if (module_->tracer() != nullptr) {
        module_->tracer()->set_phase(phase);
    }
}

EtdumpBytes GenerationSession::take_etdump() { return module_->take_etdump(); }

}  // namespace etprof
