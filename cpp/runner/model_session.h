#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conditions.h"
#include "inputs.h"
#include "kernel_trace/kernel_trace.h"
#include "options.h"
#include "outputs.h"
#include "program_description.h"

namespace etprof {

/// Everything a run measured; latencies and times in ns of the steady clock.
struct Measurements {
    std::size_t threads_in_force = 0;
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

class LoadedModule;

/// One method of one program, loaded and executed.
///
/// Use: load(), bind_inputs(), run(), then outputs() and take_etdump(). Every failure is a
/// RunnerError. Without --etdump or --kernel-trace nothing observes the executions.
class ModelSession {
 public:
    /// `method` must outlive the session, and so must `trace`, which is null when there is none.
    /// Sets the size of the process's thread pool.
    ModelSession(const Options& options, const MethodDescription& method, KernelTrace* trace);
    ~ModelSession();

    void load();
    /// Keeps a view of `inputs`, which must outlive run(). Takes what the program fixes from it.
    void bind_inputs(const std::vector<Input>& inputs);
    void run();

    const Measurements& measurements() const { return measurements_; }
    std::vector<Output> outputs();
    /// Only with --etdump, once, after run().
    EtdumpBytes take_etdump();

 private:
    void load_program_and_method();
    void set_phase(const char* name);
    /// Sets the inputs, executes, takes the outputs.
    struct Sample {
        std::uint64_t input_ns;
        std::uint64_t latency_ns;
        std::uint64_t output_ns;
    };
    Sample execute();
    std::uint64_t execute_batch(std::uint64_t count);
    void warm_up();
    bool is_steady() const;
    void choose_batch();
    void evict_inputs();
    bool keeps_inputs();
    std::uint64_t fastest_so_far() const;

    const Options& options_;
    const MethodDescription& method_;
    KernelTrace* trace_;
    const char* phase_ = "First";
    std::unique_ptr<LoadedModule> module_;
    Measurements measurements_;
};

}  // namespace etprof
