// The built runner on real programs: what it writes, and that it writes what PyTorch computed.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof::testing;

/// A run that must succeed; its result stays at hand.
class Run {
 public:
    Run(const std::string& model, std::vector<std::string> more) {
        std::vector<std::string> arguments{"--model",   program(model),
                                           "--result",  folder_.path("result.json"),
                                           "--outputs", folder_.path("outputs")};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Finished finished = run_runner(arguments);
        CHECK_EQUAL("", finished.standard_error);
        CHECK_EQUAL(0, finished.exit_code);
        CHECK_EQUAL("", finished.standard_output);
        result_ = read_file(folder_.path("result.json"));
    }

    std::string field(const std::string& name) const { return json_field(result_, name); }
    std::string output(int index) const {
        return read_file(folder_.path("outputs/output_" + std::to_string(index) + ".bin"));
    }
    const std::string& result() const { return result_; }

 private:
    ScratchFolder folder_;
    std::string result_;
};

std::vector<std::string> input_flags(const std::string& stem, int count,
                                     std::vector<std::string> more = {}) {
    for (int i = 0; i < count; ++i) {
        more.push_back("--input=" + program(stem + "_" + std::to_string(i) + ".bin"));
    }
    return more;
}

/// The most memory that a child which has ended ever had resident.
long peak_bytes_of_children() {
#if defined(__APPLE__)
    constexpr long kUnitBytes = 1;
#else
    constexpr long kUnitBytes = 1024;
#endif
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_maxrss * kUnitBytes;
}

/// Largest difference between two files of float32.
double distance(const std::string& a, const std::string& b) {
    CHECK_EQUAL(a.size(), b.size());
    double largest = 0;
    for (std::size_t offset = 0; offset < a.size(); offset += sizeof(float)) {
        float x = 0;
        float y = 0;
        std::memcpy(&x, a.data() + offset, sizeof x);
        std::memcpy(&y, b.data() + offset, sizeof y);
        largest = std::fmax(largest, std::fabs(x - y));
    }
    return largest;
}

TEST(run_of_xnnpack_equals_pytorch) {
    const Run run("convolutions_fp32.pte", input_flags("convolutions_fp32_input", 1));
    CHECK(distance(read_file(program("convolutions_fp32_expected_0.bin")), run.output(0)) < 1e-5);
    CHECK_EQUAL("\"file\"", run.field("source"));
}

TEST(run_of_portable_kernels_equals_pytorch) {
    const Run run("mlp.pte", input_flags("mlp_input", 1));
    CHECK(distance(read_file(program("mlp_expected_0.bin")), run.output(0)) < 1e-5);
}

TEST(run_of_float16_takes_and_gives_float16) {
    const Run run("convolutions_fp16.pte", {});
    CHECK_EQUAL("\"float16\"", run.field("dtype"));
    CHECK_EQUAL(20U, run.output(0).size());
    CHECK_EQUAL("0", run.field("nonfinite_count"));
}

TEST(run_of_integer_indices_equals_pytorch) {
    const Run run("embedding.pte", input_flags("embedding_input", 1));
    CHECK_EQUAL("\"int64\"", run.field("dtype"));
    CHECK(read_file(program("embedding_expected_0.bin")) == run.output(0));
}

TEST(run_of_seeded_indices_stays_inside_the_table) {
    const Run run("embedding.pte", {"--seed=3"});
    CHECK_EQUAL("\"seeded\"", run.field("source"));
}

TEST(run_takes_every_dtype_unchanged) {
    const Run run("dtypes.pte", input_flags("dtypes_input", 9));
    for (int i = 0; i < 9; ++i) {
        CHECK(read_file(program("dtypes_expected_" + std::to_string(i) + ".bin")) == run.output(i));
    }
    for (const char* dtype :
         {"uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float64", "bool"}) {
        CHECK(run.result().find(std::string("\"dtype\": \"") + dtype + "\"") != std::string::npos);
    }
}

TEST(run_makes_up_values_of_every_dtype) { Run("dtypes.pte", {"--seed=1"}); }

TEST(run_takes_numbers_and_flags_from_the_program) {
    const Run run("mixed.pte", input_flags("mixed_input", 2));
    CHECK(read_file(program("mixed_expected_0.bin")) == run.output(0));
    CHECK(run.result().find("\"source\": \"program\"") != std::string::npos);
}

TEST(run_chooses_the_method) {
    const Run twice("two_methods.pte", {});
    const Run thrice("two_methods.pte", {"--method=thrice"});
    CHECK_EQUAL("\"thrice\"", thrice.field("method"));
    float two = 0;
    float three = 0;
    std::memcpy(&two, twice.output(0).data(), sizeof two);
    std::memcpy(&three, thrice.output(0).data(), sizeof three);
    CHECK(std::fabs(three / two - 1.5F) < 1e-6F);
}

TEST(run_finds_weights_in_a_data_file) {
    const std::string data = program("_default_external_constant.ptd");
    const Run run("external.pte", input_flags("mlp_input", 1, {"--data", data}));
    CHECK_EQUAL("\"" + data + "\"", run.field("data_path"));
}

TEST(run_gives_memory_to_unplanned_values) {
    const Run run("unplanned.pte", input_flags("mlp_input", 1));
    CHECK_EQUAL(32U, run.output(0).size());
    float input = 0;
    float doubled = 0;
    std::memcpy(&input, read_file(program("mlp_input_0.bin")).data(), sizeof input);
    std::memcpy(&doubled, run.output(0).data(), sizeof doubled);
    CHECK_EQUAL(2 * input, doubled);
}

TEST(run_takes_the_largest_dynamic_shape_or_a_given_one) {
    const Run largest("dynamic.pte", {});
    CHECK_EQUAL("[4, 8]", largest.field("shape"));
    const Run smaller("dynamic.pte", {"--shapes=2x8"});
    CHECK_EQUAL("[2, 8]", smaller.field("shape"));
    CHECK_EQUAL(2 * 4 * sizeof(float), smaller.output(0).size());
}

TEST(run_counts_nonfinite_outputs_and_succeeds) {
    const Run run("logarithm.pte", {"--seed=0"});
    CHECK(run.field("nonfinite_count") != "0");
}

TEST(run_counts_an_output_that_is_an_infinite_number) {
    const ScratchFolder folder;
    const float infinite = HUGE_VALF;
    std::string bytes(sizeof infinite, '\0');
    std::memcpy(bytes.data(), &infinite, sizeof infinite);
    const Run run("scalars.pte", {"--input", program("scalars_input_0.bin"), "--input",
                                  folder.write("infinite.bin", bytes), "--shapes=2x3,scalar"});
    const std::string& result = run.result();
    CHECK_EQUAL("1", json_field(result.substr(result.find("\"float64\"")), "nonfinite_count"));
}

TEST(run_gives_the_same_outputs_for_the_same_seed) {
    const Run first("convolutions_fp32.pte", {"--seed=5", "--threads=1"});
    const Run second("convolutions_fp32.pte", {"--seed=5", "--threads=2", "--load-mode=mmap"});
    const Run third("convolutions_fp32.pte", {"--seed=6"});
    CHECK(first.output(0) == second.output(0));
    CHECK(first.output(0) != third.output(0));
    CHECK_EQUAL("\"mmap\"", second.field("mode"));
}

TEST(run_keeps_every_latency_apart_from_warm_up_and_first) {
    const Run run("mlp.pte", {"--iterations=17", "--warmup=4"});
    CHECK_EQUAL(17U, numbers(run.field("latency_ns")).size());
    CHECK_EQUAL(4U, numbers(run.field("warmup_latency_ns")).size());
    CHECK_EQUAL("17", run.field("iterations"));
    CHECK(std::stol(run.field("first_inference_ns")) > 0);
    CHECK(std::stol(run.field("program_ns")) > 0 && std::stol(run.field("method_ns")) > 0);
    CHECK_EQUAL("\"timing\"", run.field("pass"));
}

TEST(run_goes_on_until_both_seconds_and_iterations_are_done) {
    const Run by_time("mlp.pte", {"--min-seconds=0.05", "--iterations=2"});
    CHECK(std::stol(by_time.field("iterations")) > 2);
    const Run by_count("mlp.pte", {"--min-seconds=0.000001", "--iterations=300"});
    CHECK_EQUAL("300", by_count.field("iterations"));
}

TEST(run_times_inputs_and_outputs_apart_from_the_execution) {
    const Run run("convolutions_fp32.pte", {"--iterations=6", "--threads=1"});
    CHECK_EQUAL("1", run.field("inferences_per_sample"));
    CHECK_EQUAL(6U, numbers(run.field("input_ns")).size());
    CHECK_EQUAL(6U, numbers(run.field("output_ns")).size());
    CHECK(std::stol(run.field("tick_ns")) > 0 && std::stod(run.field("reading_ns")) > 0);
    CHECK(std::stol(run.field("minor_faults")) >= 0);
    CHECK_EQUAL("null", run.field("is_steady"));
}

TEST(run_times_no_copy_of_the_inputs) {
    // C2: the inputs' copies were in the latency. This program looks at a corner of what it takes.
    const Run run("corner.pte", {"--iterations=30", "--threads=1"});
    const std::vector<std::uint64_t> latency_ns = numbers(run.field("latency_ns"));
    const std::vector<std::uint64_t> input_ns = numbers(run.field("input_ns"));
    CHECK(*std::min_element(latency_ns.begin(), latency_ns.end()) <
          *std::min_element(input_ns.begin(), input_ns.end()));
}

TEST(run_times_together_what_is_too_short_for_the_clock) {
    // C6: so many inferences stand between two readings that a hundred ticks do.
    const Run run("no_inputs.pte", {"--iterations=20", "--warmup=9"});
    std::vector<std::uint64_t> before_ns = numbers(run.field("warmup_latency_ns"));
    before_ns.push_back(std::stoul(run.field("first_inference_ns")));
    const std::uint64_t fastest_ns = *std::min_element(before_ns.begin(), before_ns.end());
    const std::uint64_t least_ns = 100 * std::stoul(run.field("tick_ns"));
    const std::uint64_t at_once = (least_ns + fastest_ns - 1) / fastest_ns;
    CHECK_EQUAL(at_once, std::stoul(run.field("inferences_per_sample")));
    CHECK_EQUAL(20U, numbers(run.field("latency_ns")).size());
    CHECK_EQUAL(at_once > 1 ? 0U : 20U, numbers(run.field("input_ns")).size());
}

TEST(run_gives_the_inputs_anew_before_every_execution) {
    // The program's plan uses the memory of its inputs again, so a second execution on what is left
    // of them would differ from the first.
    const Run once("convolutions_fp32.pte", {"--iterations=1", "--warmup=0", "--seed=3"});
    const Run often("convolutions_fp32.pte", {"--iterations=50", "--warmup=9", "--seed=3"});
    CHECK(once.output(0) == often.output(0));
    const Run cold("convolutions_fp32.pte", {"--iterations=5", "--seed=3", "--cold-inputs"});
    CHECK(once.output(0) == cold.output(0));
}

// C6: ten inferences of 10 µs warm nothing up.
TEST(run_warms_up_for_seconds_and_until_steady) {
    const Run by_time("mlp.pte", {"--warmup=2", "--warmup-seconds=0.05"});
    CHECK(numbers(by_time.field("warmup_latency_ns")).size() > 2);
    const Run steady("mlp.pte", {"--warmup=1", "--warmup-steady"});
    CHECK(numbers(steady.field("warmup_latency_ns")).size() >= 20);
    CHECK(steady.field("is_steady") == "true" || steady.field("is_steady") == "false");
}

TEST(run_sets_the_thread_pool) {
    for (const char* threads : {"1", "3"}) {
        const Run run("convolutions_fp32.pte", {"--threads", threads});
        CHECK_EQUAL(std::string(threads), run.field("requested"));
        CHECK_EQUAL(std::string(threads), run.field("in_force"));
    }
    CHECK_EQUAL("null", Run("mlp.pte", {}).field("requested"));
}

TEST(run_of_a_method_without_inputs) {
    const Run run("no_inputs.pte", {});
    CHECK_EQUAL("[]", run.field("inputs"));
    CHECK(read_file(program("no_inputs_expected_0.bin")) == run.output(0));
}

TEST(run_writes_outputs_that_are_no_tensors) {
    const Run run("scalars.pte", input_flags("scalars_input", 2, {"--shapes=2x3,scalar"}));
    const std::int64_t rows = 2;
    const double first = 0.25;
    const bool on = true;
    CHECK_EQUAL(24U, run.output(0).size());
    CHECK_EQUAL(0, std::memcmp(&rows, run.output(1).data(), sizeof rows));
    CHECK_EQUAL(0, std::memcmp(&first, run.output(2).data(), sizeof first));
    CHECK_EQUAL(0, std::memcmp(&on, run.output(3).data(), sizeof on));
    CHECK_EQUAL("", run.output(4));
}

TEST(run_takes_no_memory_for_iterations_to_come) {
    // GIVEN a run of more iterations than a second of CPU time allows
    const rlimit one_second{1, RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &one_second);
    // WHEN
    const ScratchFolder folder;
    const Finished finished =
        run_runner({"--model", program("mlp.pte"), "--result", folder.path("r.json"),
                    "--iterations=200000000", "--threads=1"});
    // THEN it was stopped with much less in memory than so many samples take
    CHECK_EQUAL(-SIGXCPU, finished.exit_code);
    CHECK(peak_bytes_of_children() < 600L << 20);
    CHECK_EQUAL(0U, folder.count());
}

TEST(run_reports_memory) {
    const Run run("convolutions_fp32.pte", {});
    const long after = std::stol(run.field("rss_after_load_bytes"));
    CHECK(after >= std::stol(run.field("rss_before_load_bytes")));
    const long peak = std::stol(run.field("peak_rss_bytes"));
    CHECK(peak >= after && peak < 2 * peak_bytes_of_children());
    CHECK(std::stol(run.field("planned_buffers_bytes").substr(1)) > 0);
}

TEST(run_takes_an_input_with_a_comma_in_its_name) {
    const ScratchFolder folder;
    const std::string path = folder.write("a,b.bin", std::string(32, '\0'));
    const Run run("mlp.pte", {"--input", path});
    CHECK(run.result().find("\"path\": \"" + path + "\"") != std::string::npos);
}

TEST(run_overwrites_an_older_result) {
    const ScratchFolder folder;
    const std::string result = folder.write("r.json", "old");
    CHECK_EQUAL(0, run_runner({"--model", program("mlp.pte"), "--result", result}).exit_code);
    CHECK_EQUAL("1", json_field(read_file(result), "schema_version"));
}

TEST(run_can_send_its_result_down_a_pipe_or_to_a_device) {
    const Finished finished = run_runner({"--model", program("mlp.pte"), "--result", "/dev/null"});
    CHECK_EQUAL(0, finished.exit_code);
    CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST(describe_tells_methods_inputs_and_backends) {
    const Finished finished =
        run_runner({"--describe", "--model", program("convolutions_fp32.pte")});
    CHECK_EQUAL(0, finished.exit_code);
    CHECK_EQUAL("[1, 3, 16, 16]", json_field(finished.standard_output, "shape"));
    CHECK_EQUAL("[\"XnnpackBackend\"]", json_field(finished.standard_output, "backends"));
    // Behind the program's own size, wherever its path ends.
    const std::string inputs = finished.standard_output.substr(
        std::min(finished.standard_output.size(), finished.standard_output.find("\"inputs\"")));
    CHECK_EQUAL("3072", json_field(inputs, "size_bytes"));
}

TEST(build_info_names_compiler_and_executorch) {
    const Finished finished = run_runner({"--build-info"});
    CHECK_EQUAL(0, finished.exit_code);
    CHECK(json_field(finished.standard_output, "executorch_version").size() > 4);
    CHECK(json_field(finished.standard_output, "compiler_version").size() > 2);
}

TEST(cpu_info_and_help_and_version_succeed) {
    for (const char* flag : {"--cpu-info", "--help", "--version"}) {
        const Finished finished = run_runner({flag});
        CHECK_EQUAL(0, finished.exit_code);
        CHECK(!finished.standard_output.empty());
        CHECK_EQUAL("", finished.standard_error);
    }
}

}  // namespace
