#include "result_document.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/json_writer.h"
#include "build_info.h"
#include "layout.h"

namespace etprof {
namespace {

using std::chrono::system_clock;

std::string type_name(const ValueDescription& value) {
    return value.dtype == ScalarType::Undefined ? value.kind : dtype_name(value.dtype);
}

void write_runner(JsonWriter& json) {
    json.begin_object();
    json.field("version", runner_version());
    json.key("build");
    write_build_info(json);
    json.end_object();
}

/// How every document of a program begins.
void begin(JsonWriter& json, const ProgramDescription& program, int version = kSchemaVersion) {
    json.begin_object();
    json.field("schema_version", version);
    json.key("runner");
    write_runner(json);
    json.object("model", "path", plain_path(program.path), "size_bytes", program.size_bytes);
}

std::string end(JsonWriter& json) {
    json.end_object();
    return json.take_text();
}

/// Python makes features and a model's name of it.
void write_cpu(JsonWriter& json) {
#if defined(__x86_64__)
    constexpr char kArchitecture[] = "x86_64";
#else
    constexpr char kArchitecture[] = "aarch64";
#endif
    json.begin_object();
    json.fields("architecture", kArchitecture, "logical_cores", sysconf(_SC_NPROCESSORS_ONLN),
                "cpuinfo", describe_cpu());
    json.end_object();
}

void write_inputs(JsonWriter& json, const std::vector<Input>& inputs) {
    std::size_t index = 0;
    json.objects("inputs", inputs, [&](const Input& input) {
        // What is no tensor is fixed in the program at export.
        const char* const made = input.value.is_tensor() ? "seeded" : "program";
        json.fields("index", index++, "dtype", type_name(input.value), "shape", input.value.shape,
                    "source", input.path ? "file" : made, "path", plain_path(input.path),
                    "size_bytes", input.value.size_bytes);
    });
}

void write_output(JsonWriter& json, std::size_t index, const Output& output) {
    json.fields("index", index, "dtype", type_name(output.value), "shape", output.value.shape,
                "size_bytes", output.bytes.size(), "path", plain_path(output.path),
                "nonfinite_count", output.nonfinite_count);
}

void write_outputs(JsonWriter& json, const std::vector<std::vector<Output>>& steps) {
    struct Further {
        std::size_t step;
        std::size_t index;
        const Output* output;
    };
    std::size_t index = 0;
    const std::vector<Output> none;
    json.objects("outputs", steps.empty() ? none : steps.front(),
                 [&](const Output& output) { write_output(json, index++, output); });
    std::vector<Further> further;
    for (std::size_t step = 1; step < steps.size(); ++step) {
        for (std::size_t i = 0; i < steps[step].size(); ++i) {
            further.push_back({step + 1, i, &steps[step][i]});
        }
    }
    json.objects("further_outputs", further, [&](const Further& each) {
        json.field("step", each.step);
        write_output(json, each.index, *each.output);
    });
}

void write_threads(JsonWriter& json, const Options& options, const Measurements& taken) {
    json.object("threads", "requested", options.threads, "in_force", taken.threads_in_force);
}

void write_sme(JsonWriter& json, const Options& options, const SmeReport& sme) {
    json.object("sme", "requested", to_string(options.sme), "in_force", to_string(sme.in_force),
                "cpu_features", sme.cpu_features, "shown_features", sme.shown_features, "svl_bits",
                sme.svl_bits);
}

const char* pass_name(const Options& options) {
    return options.kernel_trace_path ? "kernel_trace" : options.etdump_path ? "etdump" : "timing";
}

void write_times(JsonWriter& json, const Measurements& taken) {
    json.fields("first_inference_ns", taken.first_inference_ns, "warmup_latency_ns",
                taken.warmup_latency_ns, "is_steady", taken.is_steady, "latency_ns",
                taken.latency_ns, "input_ns", taken.input_ns, "output_ns", taken.output_ns,
                "inferences_per_sample", taken.inferences_per_sample);
    json.object("clock", "tick_ns", taken.clock.tick_ns, "reading_ns", taken.clock.reading_ns);
    const Conditions& during = taken.conditions;
    json.object("conditions", "minor_faults", during.minor_faults, "major_faults",
                during.major_faults, "voluntary_switches", during.voluntary_switches,
                "involuntary_switches", during.involuntary_switches, "first_core",
                during.first_core, "last_core", during.last_core);
    json.field("iterations", taken.latency_ns.size());
}

void write_values(JsonWriter& json, const char* name, const std::vector<ValueDescription>& values) {
    std::size_t index = 0;
    json.objects(name, values, [&](const ValueDescription& value) {
        json.fields("index", index++, "kind", value.kind, "dtype", type_name(value), "shape",
                    value.shape, "dim_order", value.dim_order, "size_bytes", value.size_bytes);
    });
}

/// The repetitions that count: they are the last.
std::vector<Repetition> timed_repetitions(const Session& session) {
    const std::vector<Repetition>& all = session.generation()->repetitions();
    const auto timed = static_cast<std::ptrdiff_t>(session.measurements().latency_ns.size());
    return {all.end() - timed, all.end()};
}

void write_generation(JsonWriter& json, const Options& options, const Session& session) {
    const Generation& generation = *session.generation();
    json.key("generation");
    json.begin_object();
    json.fields("prompt_tokens", options.prompt_tokens, "tokens", generation.tokens(),
                "prefill_method", generation.prefill().name, "decode_method",
                generation.decode().name, "prefilled_tokens", generation.prefilled_tokens(),
                "cache_tokens", generation.cache_tokens());
    const auto write = [&](const Repetition& repetition) {
        json.fields("prefill_ns", repetition.prefill_ns, "time_to_first_token_ns",
                    repetition.first_token_ns, "token_latency_ns", repetition.token_latency_ns,
                    "total_ns", repetition.total_ns);
    };
    json.objects("repetitions", timed_repetitions(session), write);
    json.key("first");
    json.begin_object();
    write(generation.repetitions().front());
    json.end_object();
    json.end_object();
}

std::int64_t milliseconds(system_clock::time_point moment, std::uint64_t later_ns = 0) {
    const auto since_epoch = moment.time_since_epoch() + std::chrono::nanoseconds(later_ns);
    return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

}  // namespace

std::string result_document(const Options& options, const ProgramDescription& program,
                            const Session& session, const std::vector<std::vector<Output>>& steps,
                            const SmeReport& sme) {
    const Measurements& taken = session.measurements();
    JsonWriter json;
    begin(json, program);
    json.fields("data_path", plain_path(options.data_path), "method", session.method().name, "pass",
                pass_name(options));
    json.key("cpu");
    write_cpu(json);
    write_threads(json, options, taken);
    write_sme(json, options, sme);
    json.field("seed", options.seed);
    write_inputs(json, session.inputs());
    json.object("load", "program_ns", taken.program_load_ns, "method_ns", taken.method_load_ns,
                "mode", options.is_mapped ? "mmap" : "file");
    write_times(json, taken);
    json.object("memory", "rss_before_load_bytes", taken.rss_before_load_bytes,
                "rss_after_load_bytes", taken.rss_after_load_bytes, "peak_rss_bytes",
                taken.peak_rss_bytes, "pss_bytes", taken.pss_bytes, "planned_buffers_bytes",
                session.method().planned_buffers_bytes);
    json.field("output_step", session.output_step());
    write_outputs(json, steps);
    if (session.generation() != nullptr) {
        write_generation(json, options, session);
    }
    return end(json);
}

std::string trace_document(const Options& options, const ProgramDescription& program,
                           const Session& session, const SmeReport& sme, KernelTrace& trace) {
    JsonWriter json;
    begin(json, program, kTraceSchemaVersion);
    json.field("method", options.method);
    write_threads(json, options, session.measurements());
    write_sme(json, options, sme);
    trace.write(json);
    return end(json);
}

std::string observer_lines(const Options& options, const Session& session) {
    const Measurements& taken = session.measurements();
    const auto is_space = [](unsigned char letter) { return std::isspace(letter) != 0; };
    std::string lines;
    for (const Repetition& repetition : timed_repetitions(session)) {
        JsonWriter json;
        json.begin_object();
        json.fields("prompt_tokens", options.prompt_tokens.size(), "generated_tokens",
                    options.new_tokens, "model_load_start_ms", milliseconds(taken.load_started_at),
                    "model_load_end_ms", milliseconds(taken.load_ended_at), "inference_start_ms",
                    milliseconds(repetition.started_at), "inference_end_ms",
                    milliseconds(repetition.started_at, repetition.total_ns), "prompt_eval_end_ms",
                    milliseconds(repetition.started_at, repetition.prefill_ns), "first_token_ms",
                    milliseconds(repetition.started_at, repetition.first_token_ns),
                    "aggregate_sampling_time_ms", repetition.sampling_ns / 1000000,
                    "SCALING_FACTOR_UNITS_PER_SECOND", 1000);
        std::string line = end(json);
        line.erase(std::remove_if(line.begin(), line.end(), is_space), line.end());
        lines += "PyTorchObserver " + line + "\n";
    }
    return lines;
}

std::string describe_document(const ProgramDescription& program) {
    JsonWriter json;
    json.begin_object();
    json.field("schema_version", kSchemaVersion);
    json.object("model", "path", plain_path(program.path), "size_bytes", program.size_bytes);
    json.objects("methods", program.methods, [&json](const MethodDescription& method) {
        json.field("name", method.name);
        write_values(json, "inputs", method.inputs);
        write_values(json, "outputs", method.outputs);
        json.fields("backends", method.backends, "planned_buffers_bytes",
                    method.planned_buffers_bytes);
    });
    return end(json);
}

std::string cpu_document() {
    JsonWriter json;
    write_cpu(json);
    return json.take_text();
}

std::string build_document() {
    JsonWriter json;
    write_runner(json);
    return json.take_text();
}

}  // namespace etprof
