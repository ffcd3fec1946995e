#include "session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "messages.h"

namespace etprof {
namespace {

using executorch::runtime::EValue;
using std::chrono::system_clock;

constexpr std::uint64_t kMostTouched = 1 << 16;

/// Memory for so many samples. The first half MiB is touched now, so that a measuring loop neither
/// allocates nor faults pages in; no more, for all of it counts in the peak of the resident memory.
void make_room(std::vector<std::uint64_t>& samples, std::uint64_t count) {
    samples.reserve(count);
    samples.resize(std::min(count, kMostTouched));
    samples.clear();
}

}  // namespace

Session::Session(const Options& options, const ProgramDescription& program, KernelTrace& trace)
    : options_(options), trace_(trace) {
    if (options.generates()) {
        generation_ = std::make_unique<Generation>(options, program);
        method_ = &generation_->decode();
    } else {
        method_ = &program.require_method(options.method, "--method");
        inputs_ = prepare_inputs(*method_, options);
    }
    measurements_.threads_in_force = configure_thread_pool(options.threads);
    auto tracer = trace_.take_event_tracer();
    PhaseTracer* phases = nullptr;
    if (options_.etdump_path) {
        auto recorder = std::make_unique<PhaseTracer>(std::move(tracer));
        phases = recorder.get();
        tracer = std::move(recorder);
    }
    const bool has_two_methods = generation_ != nullptr && generation_->has_two_methods();
    module_ = std::make_unique<LoadedModule>(options_, std::move(tracer), phases, has_two_methods);
}

void Session::load() {
    trace_.begin_load();
    clear_runtime_errors();
    measurements_.rss_before_load_bytes = resident_bytes();
    measurements_.load_started_at = system_clock::now();
    const auto begin = Clock::now();
    module_->require_program();
    const auto program_loaded = Clock::now();
    if (generation_ != nullptr) {
        module_->require_method(generation_->prefill().name);
    }
    module_->require_method(method_->name);
    const auto methods_loaded = Clock::now();
    measurements_.load_ended_at = system_clock::now();
    measurements_.rss_after_load_bytes = resident_bytes();
    measurements_.program_load_ns = elapsed_ns(begin, program_loaded);
    measurements_.method_load_ns = elapsed_ns(program_loaded, methods_loaded);
    trace_.end_load();
    if (generation_ != nullptr) {
        generation_->bind(*module_);
    } else {
        bind_inputs();
    }
}

void Session::bind_inputs() {
    inference_ = std::make_unique<LoadedMethod>(*module_, *method_);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const ValueDescription& value = inputs_[i].value;
        if (!value.is_tensor()) {
            continue;
        }
        if (value.shape != method_->inputs[i].shape && inference_->is_fixed(i)) {
            throw RunnerError(ExitCode::kInput,
                              "input " + std::to_string(i) + " of '" + method_->name +
                                  "' has the fixed shape " + shape_text(method_->inputs[i].shape),
                              "give it that shape, or export it with dynamic shapes");
        }
        inference_->bind(i, value, inputs_[i].bytes);
    }
}

Session::Sample Session::iterate(const char* phase) {
    if (generation_ != nullptr) {
        return {0, generation_->repeat(phase).total_ns, 0};
    }
    if (options_.has_step_inputs && steps_.size() < options_.output_steps) {
        for (Input& input : inputs_) {
            input.take_step(steps_.size());
        }
    }
    const auto begin = Clock::now();
    inference_->set_inputs();
    const auto bound = Clock::now();
    if (options_.cold_inputs) {
        evict_inputs();
    }
    module_->set_phase(phase);
    module_->open_block();
    trace_.begin_execution(phase);
    const auto started = Clock::now();
    const auto error = inference_->execute();
    const auto ended = Clock::now();
    trace_.end_execution();
    inference_->require_executed(error);
    const auto reading = Clock::now();
    inference_->take_outputs();
    const auto taken = Clock::now();
    if (options_.outputs_dir && steps_.size() < options_.output_steps) {
        steps_.push_back(copy_outputs());
    }
    return {elapsed_ns(begin, bound), elapsed_ns(started, ended), elapsed_ns(reading, taken)};
}

/// Inferences that are too short for the clock are timed together.
std::uint64_t Session::execute_batch(std::uint64_t count) {
    auto error = executorch::runtime::Error::Ok;
    inference_->set_inputs();
    const auto begin = Clock::now();
    for (std::uint64_t i = 0; i < count && error == executorch::runtime::Error::Ok; ++i) {
        error = inference_->execute();
    }
    const auto end = Clock::now();
    inference_->require_executed(error);
    return elapsed_ns(begin, end) / count;
}

void Session::run() {
    clear_runtime_errors();
    measurements_.clock = measure_clock();
    measurements_.first_inference_ns = iterate("First").latency_ns;
    warm_up();
    choose_batch();
    time_iterations();
    measurements_.peak_rss_bytes = peak_resident_bytes();
    measurements_.pss_bytes = proportional_bytes();
}

/// At least as many inferences and as long as was asked for, and on until they are steady.
void Session::warm_up() {
    constexpr std::uint64_t kMostNs =
        10'000'000'000;  // something that never settles is measured too
    const std::uint64_t least_ns = static_cast<std::uint64_t>(options_.warmup_seconds * 1e9);
    std::vector<std::uint64_t>& samples = measurements_.warmup_latency_ns;
    make_room(samples, options_.warmup);
    const auto begin = Clock::now();
    for (std::uint64_t total_ns = 0; samples.size() < options_.warmup || total_ns < least_ns ||
                                     (options_.warmup_steady && total_ns < kMostNs && !is_steady());
         total_ns = elapsed_ns(begin, Clock::now())) {
        samples.push_back(iterate("Warmup").latency_ns);
    }
    measurements_.is_steady =
        options_.warmup_steady ? std::make_optional(is_steady()) : std::nullopt;
}

void Session::time_iterations() {
    Measurements& taken = measurements_;
    const std::uint64_t least_ns = static_cast<std::uint64_t>(options_.min_seconds * 1e9);
    const std::uint64_t guess = least_ns / std::max<std::uint64_t>(1, fastest_so_far());
    const std::uint64_t room = std::max(options_.iterations, std::min(2 * guess, kMostTouched));
    for (auto* samples : {&taken.latency_ns, &taken.input_ns, &taken.output_ns}) {
        make_room(*samples, room);
    }
    const std::uint64_t at_once = taken.inferences_per_sample;
    const Conditions before = conditions_since();
    for (std::uint64_t total_ns = 0;
         taken.latency_ns.size() < options_.iterations || total_ns < least_ns;
         total_ns += taken.latency_ns.back() * at_once) {
        if (at_once > 1) {
            taken.latency_ns.push_back(execute_batch(at_once));
            continue;
        }
        const Sample sample = iterate("Execute");
        taken.latency_ns.push_back(sample.latency_ns);
        if (generation_ == nullptr) {
            taken.input_ns.push_back(sample.input_ns);
            taken.output_ns.push_back(sample.output_ns);
        }
    }
    taken.conditions = conditions_since(before);
}

/// Whether the two last quarters of the warm-up, of at least five inferences each, have medians
/// within 2 % of each other.
bool Session::is_steady() const {
    const std::vector<std::uint64_t>& samples = measurements_.warmup_latency_ns;
    const std::size_t size = samples.size() / 4;
    // Asked each time that a quarter is complete: the medians cost time between inferences.
    if (size < 5 || samples.size() % size != 0) {
        return false;
    }
    const auto median = [size](auto begin) {
        std::vector<std::uint64_t> window(begin, begin + static_cast<std::ptrdiff_t>(size));
        std::nth_element(window.begin(), window.begin() + size / 2, window.end());
        return static_cast<double>(window[size / 2]);
    };
    const auto last = samples.end() - static_cast<std::ptrdiff_t>(size);
    const double newer = median(last);
    const double older = median(last - static_cast<std::ptrdiff_t>(size));
    return std::abs(newer - older) <= 0.02 * older;
}

/// Inferences of less than a hundred ticks of the clock are timed together, unless each needs its
/// inputs given anew, which is not to be timed.
void Session::choose_batch() {
    constexpr std::uint64_t kLeastTicks = 100;
    const bool is_watched = options_.kernel_trace_path || options_.etdump_path ||
                            options_.cold_inputs || options_.output_steps > 1;
    const std::uint64_t least_ns = kLeastTicks * measurements_.clock.tick_ns;
    const std::uint64_t fastest_ns = std::max<std::uint64_t>(1, fastest_so_far());
    if (generation_ == nullptr && !is_watched && options_.warmup > 0 && fastest_ns < least_ns &&
        keeps_inputs()) {
        measurements_.inferences_per_sample = (least_ns + fastest_ns - 1) / fastest_ns;
    }
}

/// Whether the inputs are what they were, after an execution: a program's plan may use their memory
/// again once they were read.
bool Session::keeps_inputs() {
    const std::vector<EValue>& given = inference_->inputs();
    const std::vector<EValue> found = inference_->inner_inputs();
    return std::equal(
        given.begin(), given.end(), found.begin(), [](const EValue& a, const EValue& b) {
            return !b.isTensor() ||
                   std::memcmp(a.toTensor().const_data_ptr(), b.toTensor().const_data_ptr(),
                               a.toTensor().nbytes()) == 0;
        });
}

void Session::evict_inputs() {
    for (const EValue& value : inference_->inner_inputs()) {
        if (value.isTensor()) {
            evict_from_caches(value.toTensor().const_data_ptr(), value.toTensor().nbytes());
        }
    }
}

std::uint64_t Session::fastest_so_far() const {
    const std::vector<std::uint64_t>& samples = measurements_.warmup_latency_ns;
    const auto least = std::min_element(samples.begin(), samples.end());
    const std::uint64_t first_ns = measurements_.first_inference_ns;
    return least == samples.end() ? first_ns : std::min(first_ns, *least);
}

std::vector<Output> Session::copy_outputs() {
    std::vector<Output> outputs;
    for (const EValue& value : inference_->take_outputs()) {
        outputs.push_back(copy_output(value));
    }
    return outputs;
}

std::vector<std::vector<Output>> Session::outputs() {
    if (inference_ == nullptr) {
        return {};
    }
    if (!options_.outputs_dir) {
        steps_.push_back(copy_outputs());
    }
    return std::move(steps_);
}

std::uint64_t Session::output_step() const {
    const Measurements& taken = measurements_;
    return options_.outputs_dir ? 1
                                : 1 + taken.warmup_latency_ns.size() +
                                      taken.latency_ns.size() * taken.inferences_per_sample;
}

}  // namespace etprof
