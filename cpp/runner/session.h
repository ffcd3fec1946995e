#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generation.h"
#include "kernel_trace/kernel_trace.h"
#include "loaded_method.h"
#include "options.h"
#include "process.h"
#include "program_description.h"
#include "values.h"

namespace etprof {

/// Everything a run measured; latencies and times in ns of the steady clock.
struct Measurements {
    std::size_t threads_in_force = 0;
    std::chrono::system_clock::time_point load_started_at;
    std::chrono::system_clock::time_point load_ended_at;
    /// As applications load: describe_program has verified the file before, which is not counted
    /// but leaves the file in the page cache.
    std::uint64_t program_load_ns = 0;
    std::uint64_t method_load_ns = 0;
    std::uint64_t first_inference_ns = 0;
    std::vector<std::uint64_t> warmup_latency_ns;
    /// Of Method::execute alone, without the inputs before it and the outputs after it. For a
    /// generation, of a whole repetition.
    std::vector<std::uint64_t> latency_ns;
    /// Beside each latency: giving the method its inputs, and taking its outputs. Empty for
    /// generations, which contain them, and for batches.
    std::vector<std::uint64_t> input_ns;
    std::vector<std::uint64_t> output_ns;
    /// Inferences between two readings of the clock.
    std::uint64_t inferences_per_sample = 1;
    /// Whether the warm-up ended steady; missing when that was not asked for.
    std::optional<bool> is_steady;
    ClockQuality clock;
    Conditions conditions;
    std::optional<std::uint64_t> rss_before_load_bytes;
    std::optional<std::uint64_t> rss_after_load_bytes;
    /// Both at the end of the timed iterations, before any result is put together.
    std::uint64_t peak_rss_bytes = 0;
    std::optional<std::uint64_t> pss_bytes;
};

/// Loads one program and executes one method of it again and again, or generates tokens with it.
///
/// Use: load(), run(), then outputs() and take_etdump(). Every failure is a RunnerError. Without
/// --etdump or --kernel-trace nothing observes the executions.
class Session {
 public:
    /// All arguments must outlive the session. Prepares the
    /// inputs or plans the generation. Sets the size of the process's thread pool.
    Session(const Options& options, const ProgramDescription& program, KernelTrace& trace);

    void load();
    void run();

    const Measurements& measurements() const { return measurements_; }
    /// The method that is timed; in a generation, the one that adds a token.
    const MethodDescription& method() const { return *method_; }
    const std::vector<Input>& inputs() const { return inputs_; }
    /// Null when no tokens are generated.
    const Generation* generation() const { return generation_.get(); }
    /// Those of the steps that were asked for, one after the other; without --outputs, those of the
    /// last inference. None of a generation.
    std::vector<std::vector<Output>> outputs();
    /// Which inference the first of them are of; the first of the process is 1.
    std::uint64_t output_step() const;
    /// Only with --etdump, once, after run(). The prefills of a generation are in blocks called
    /// "Prefill".
    EtdumpBytes take_etdump() { return module_->take_etdump(); }

 private:
    /// One inference: sets the inputs, executes, takes the outputs. Or a whole generation.
    struct Sample {
        std::uint64_t input_ns;
        std::uint64_t latency_ns;
        std::uint64_t output_ns;
    };
    void bind_inputs();
    std::vector<Output> copy_outputs();
    Sample iterate(const char* phase);
    std::uint64_t execute_batch(std::uint64_t count);
    void warm_up();
    void time_iterations();
    bool is_steady() const;
    void choose_batch();
    void evict_inputs();
    bool keeps_inputs();
    std::uint64_t fastest_so_far() const;

    const Options& options_;
    KernelTrace& trace_;
    std::unique_ptr<Generation> generation_;
    const MethodDescription* method_;
    std::vector<Input> inputs_;
    std::unique_ptr<LoadedModule> module_;
    std::unique_ptr<LoadedMethod> inference_;
    std::vector<std::vector<Output>> steps_;
    Measurements measurements_;
};

}  // namespace etprof
