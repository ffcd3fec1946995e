#include "result_document.h"

#include "build_info.h"
#include "cpu_features.h"
#include "generation_document.h"
#include "json_writer.h"

namespace etprof {
namespace {

const char* source_name(InputSource source) {
    switch (source) {
        case InputSource::kFile:
            return "file";
        case InputSource::kSeeded:
            return "seeded";
        default:
            return "program";
    }
}

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

void write_model(JsonWriter& json, const ProgramDescription& program) {
    json.begin_object();
    json.field("path", program.path);
    json.field("size_bytes", program.size_bytes);
    json.end_object();
}

void write_cpu(JsonWriter& json) {
    const CpuDescription cpu = describe_cpu();
    json.begin_object();
    json.field("architecture", cpu.architecture);
    json.field("model_name", cpu.model_name);
    json.field("logical_cores", cpu.logical_cores);
    json.key("features");
    json.begin_object();
    for (const auto& [name, present] : cpu.features) {
        json.field(name, present);
    }
    json.end_object();
    json.end_object();
}

void write_inputs(JsonWriter& json, const std::vector<Input>& inputs) {
    json.begin_array();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        json.begin_object();
        json.field("index", i);
        json.field("dtype", type_name(inputs[i].value));
        json.field("shape", inputs[i].value.shape);
        json.field("source", source_name(inputs[i].source));
        json.field("path", inputs[i].path);
        json.field("size_bytes", inputs[i].value.size_bytes);
        json.end_object();
    }
    json.end_array();
}

void write_outputs(JsonWriter& json, const std::vector<Output>& outputs) {
    json.begin_array();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        json.begin_object();
        json.field("index", i);
        json.field("dtype", outputs[i].dtype);
        json.field("shape", outputs[i].shape);
        json.field("size_bytes", outputs[i].bytes.size());
        json.field("path", outputs[i].path);
        json.field("nonfinite_count", outputs[i].nonfinite_count);
        json.end_object();
    }
    json.end_array();
}

void write_threads(JsonWriter& json, const Options& options, const Measurements& measurements) {
    json.begin_object();
    json.field("requested", options.threads);
    json.field("in_force", measurements.threads_in_force);
    json.end_object();
}

void write_sme(JsonWriter& json, const SmeReport& sme) {
    json.begin_object();
    json.field("requested", to_string(sme.requested));
    json.field("in_force", to_string(sme.in_force));
    json.field("cpu_features", sme.cpu_features);
    json.field("shown_features", sme.shown_features);
    json.field("svl_bits", sme.svl_bits);
    json.end_object();
}

const char* pass_name(const Options& options) {
    if (options.kernel_trace_path) {
        return "kernel_trace";
    }
    return options.etdump_path ? "etdump" : "timing";
}

void write_load(JsonWriter& json, const Options& options, const Measurements& measurements) {
    json.begin_object();
    json.field("program_ns", measurements.program_load_ns);
    json.field("method_ns", measurements.method_load_ns);
    json.field("mode", options.load_mode == LoadMode::kMmap ? "mmap" : "file");
    json.end_object();
}

void write_clock(JsonWriter& json, const ClockQuality& clock) {
    json.begin_object();
    json.field("tick_ns", clock.tick_ns);
    json.field("reading_ns", clock.reading_ns);
    json.end_object();
}

void write_conditions(JsonWriter& json, const Conditions& conditions) {
    json.begin_object();
    json.field("minor_faults", conditions.minor_faults);
    json.field("major_faults", conditions.major_faults);
    json.field("voluntary_switches", conditions.voluntary_switches);
    json.field("involuntary_switches", conditions.involuntary_switches);
    json.field("first_core", conditions.first_core);
    json.field("last_core", conditions.last_core);
    json.end_object();
}

void write_memory(JsonWriter& json, const Measurements& measurements,
                  const MethodDescription& method) {
    json.begin_object();
    json.field("rss_before_load_bytes", measurements.rss_before_load_bytes);
    json.field("rss_after_load_bytes", measurements.rss_after_load_bytes);
    json.field("peak_rss_bytes", measurements.peak_rss_bytes);
    json.field("pss_bytes", measurements.pss_bytes);
    json.field("planned_buffers_bytes", method.planned_buffers_bytes);
    json.end_object();
}

void write_etdump(JsonWriter& json, const Options& options,
                  std::optional<std::uint64_t> size_bytes) {
    if (!size_bytes) {
        json.value(nullptr);
        return;
    }
    json.begin_object();
    json.field("path", options.etdump_path);
    json.field("size_bytes", size_bytes);
    json.end_object();
}

void write_values(JsonWriter& json, const std::vector<ValueDescription>& values) {
    json.begin_array();
    for (std::size_t i = 0; i < values.size(); ++i) {
        json.begin_object();
        json.field("index", i);
        json.field("kind", values[i].kind);
        json.field("dtype", type_name(values[i]));
        json.field("shape", values[i].shape);
        json.field("dim_order", values[i].dim_order);
        json.field("size_bytes", values[i].size_bytes);
        json.end_object();
    }
    json.end_array();
}

void write_method(JsonWriter& json, const MethodDescription& method) {
    json.begin_object();
    json.field("name", method.name);
    json.key("inputs");
    write_values(json, method.inputs);
    json.key("outputs");
    write_values(json, method.outputs);
    json.field("backends", method.backends);
    json.field("planned_buffers_bytes", method.planned_buffers_bytes);
    json.end_object();
}

}  // namespace

std::string result_document(const Options& options, const ProgramDescription& program,
                            const std::vector<Input>& inputs, const Measurements& measurements,
                            const std::vector<Output>& outputs,
                            std::optional<std::uint64_t> etdump_size_bytes, const SmeReport& sme,
                            const GenerationSession* generation) {
    JsonWriter json;
    json.begin_object();
    json.field("schema_version", kSchemaVersion);
    json.key("runner");
    write_runner(json);
    json.key("model");
    write_model(json, program);
    json.field("data_path", options.data_path);
    json.field("method", options.method);
    json.field("pass", pass_name(options));
    json.key("cpu");
    write_cpu(json);
    json.key("threads");
    write_threads(json, options, measurements);
    json.key("sme");
    write_sme(json, sme);
    json.field("seed", options.seed);
    json.key("inputs");
    write_inputs(json, inputs);
    json.key("load");
    write_load(json, options, measurements);
    json.field("first_inference_ns", measurements.first_inference_ns);
    json.field("warmup_latency_ns", measurements.warmup_latency_ns);
    json.field("is_steady", measurements.is_steady);
    json.field("latency_ns", measurements.latency_ns);
    json.field("input_ns", measurements.input_ns);
    json.field("output_ns", measurements.output_ns);
    json.field("inferences_per_sample", measurements.inferences_per_sample);
    json.key("clock");
    write_clock(json, measurements.clock);
    json.key("conditions");
    write_conditions(json, measurements.conditions);
    json.field("iterations", measurements.latency_ns.size());
    json.key("memory");
    write_memory(json, measurements, program.find_method(options.method));
    json.key("outputs");
    write_outputs(json, outputs);
    json.key("etdump");
    write_etdump(json, options, etdump_size_bytes);
    if (generation != nullptr) {
        json.key("generation");
        write_generation(json, generation->plan(), generation->report());
    }
    json.end_object();
    return json.take_text();
}

std::string trace_document(const Options& options, const ProgramDescription& program,
                           const Measurements& measurements, const SmeReport& sme,
                           KernelTrace& trace) {
    JsonWriter json;
    json.begin_object();
    json.field("schema_version", kSchemaVersion);
    json.key("runner");
    write_runner(json);
    json.key("model");
    write_model(json, program);
    json.field("method", options.method);
    json.key("threads");
    write_threads(json, options, measurements);
    json.key("sme");
    write_sme(json, sme);
    trace.write(json);
    json.end_object();
    return json.take_text();
}

std::string describe_document(const ProgramDescription& program) {
    JsonWriter json;
    json.begin_object();
    json.field("schema_version", kSchemaVersion);
    json.key("model");
    write_model(json, program);
    json.key("methods");
    json.begin_array();
    for (const MethodDescription& method : program.methods) {
        write_method(json, method);
    }
    json.end_array();
    json.end_object();
    return json.take_text();
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
