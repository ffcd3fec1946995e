#include "generation_document.h"

#include <string_view>
#include <utility>

namespace etprof {
namespace {

using std::chrono::system_clock;

void write_repetition(JsonWriter& json, const Repetition& repetition) {
    json.begin_object();
    json.field("prefill_ns", repetition.prefill_ns);
    json.field("time_to_first_token_ns", repetition.first_token_ns);
    json.field("token_latency_ns", repetition.token_latency_ns);
    json.field("total_ns", repetition.total_ns);
    json.end_object();
}

std::int64_t milliseconds(system_clock::time_point moment) {
    const auto since_epoch = moment.time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

std::string observer_line(const GenerationPlan& plan, const GenerationReport& report,
                          const Repetition& repetition) {
    const auto after = [&repetition](std::uint64_t elapsed_ns) {
        const std::chrono::nanoseconds elapsed(elapsed_ns);
        return milliseconds(repetition.started_at +
                            std::chrono::duration_cast<system_clock::duration>(elapsed));
    };
    const std::pair<std::string_view, std::int64_t> members[] = {
        {"prompt_tokens", static_cast<std::int64_t>(plan.prompt.size())},
        {"generated_tokens", static_cast<std::int64_t>(plan.new_tokens)},
        {"model_load_start_ms", milliseconds(report.load_started_at)},
        {"model_load_end_ms", milliseconds(report.load_ended_at)},
        {"inference_start_ms", after(0)},
        {"inference_end_ms", after(repetition.total_ns)},
        {"prompt_eval_end_ms", after(repetition.prefill_ns)},
        {"first_token_ms", after(repetition.first_token_ns)},
        {"aggregate_sampling_time_ms", static_cast<std::int64_t>(repetition.sampling_ns / 1000000)},
        {"SCALING_FACTOR_UNITS_PER_SECOND", 1000},
    };
    std::string line = "PyTorchObserver {";
    for (const auto& [name, value] : members) {
        line += (line.back() == '{' ? "\"" : ",\"") + std::string(name) + "\":";
        line += std::to_string(value);
    }
    return line + "}\n";
}

}  // namespace

void write_generation(JsonWriter& json, const GenerationPlan& plan,
                      const GenerationReport& report) {
    json.begin_object();
    json.field("prompt_tokens", plan.prompt);
    json.field("tokens", report.tokens);
    json.field("prefill_method", plan.prefill.name());
    json.field("decode_method", plan.decode.name());
    json.field("prefilled_tokens", report.prefilled_tokens);
    json.field("cache_tokens", plan.cache_tokens);
    json.key("repetitions");
    json.begin_array();
    for (const Repetition& repetition : report.repetitions) {
        write_repetition(json, repetition);
    }
    json.end_array();
    json.end_object();
}

std::string observer_lines(const GenerationPlan& plan, const GenerationReport& report) {
    std::string lines;
    for (const Repetition& repetition : report.repetitions) {
        lines += observer_line(plan, report, repetition);
    }
    return lines;
}

}  // namespace etprof
