// The built runner and everything that can go wrong: exit code, the one line, nothing left behind.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof::testing;

constexpr int kUsage = 2;
constexpr int kModel = 3;
constexpr int kInput = 4;
constexpr int kMethod = 5;
constexpr int kExecution = 6;
constexpr int kOutput = 7;
constexpr int kInternal = 70;

/// Runs with all outputs in one folder and expects failure: `line` is all of stderr but the name.
void expect_failure(int exit_code, const std::string& line, std::vector<std::string> more) {
    const ScratchFolder folder;
    std::vector<std::string> arguments{"--result", folder.path("r.json"), "--outputs",
                                       folder.path("o")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (ETPROF_HAS_EVENT_TRACER) {
        arguments.insert(arguments.begin(), {"--etdump", folder.path("x.etdump")});
    }
    const Finished finished = run_runner(arguments);
    CHECK_EQUAL("etprof-runner: " + line + "\n", finished.standard_error);
    CHECK_EQUAL(exit_code, finished.exit_code);
    CHECK_EQUAL("", finished.standard_output);
    CHECK_EQUAL(0U, folder.count());
}

const std::string kNotAProgram = " is not a program of ExecuTorch, or is damaged";
const std::string kExportAgain = ": export it again, or copy it again if it was cut short";

TEST(failure_of_a_flag) {
    expect_failure(kUsage, "unknown flag --modle: --help lists them", {"--modle", "x"});
}

TEST(failure_of_a_missing_model) {
    expect_failure(kModel,
                   "cannot read /nowhere/m.pte (No such file or directory): give the program as a "
                   "file that exists and can be read",
                   {"--model=/nowhere/m.pte"});
}

TEST(failure_of_a_folder_as_model) {
    expect_failure(kModel, "/tmp is not a file: give the program as a regular file",
                   {"--model=/tmp"});
}

TEST(failure_of_an_empty_model) {
    const ScratchFolder folder;
    const std::string path = folder.write("m.pte", "");
    expect_failure(kModel, path + kNotAProgram + kExportAgain, {"--model", path});
}

TEST(failure_of_a_text_as_model) {
    const ScratchFolder folder;
    const std::string path = folder.write("m.pte", std::string(100, 'x'));
    expect_failure(kModel, path + kNotAProgram + kExportAgain, {"--model", path});
}

TEST(failure_of_line_feeds_and_controls_keeps_to_one_line) {
    expect_failure(
        kModel,
        "cannot read /nowhere/a?b?[31m?.pte (No such file or directory): give the program "
        "as a file that exists and can be read",
        {"--model=/nowhere/a\nb\x1B[31m\x7F.pte"});
}

TEST(failure_of_a_model_cut_short_anywhere) {
    const ScratchFolder folder;
    const std::string whole = read_file(program("convolutions_fp32.pte"));
    for (std::size_t size = 0; size < whole.size(); size += whole.size() / 20) {
        const std::string path = folder.write("m.pte", whole.substr(0, size));
        const Finished finished = run_runner({"--model", path, "--result", folder.path("r.json")});
        CHECK_EQUAL(kModel, finished.exit_code);
        CHECK_EQUAL(0U, finished.standard_error.find("etprof-runner: " + path + kNotAProgram));
        CHECK_EQUAL(
            1, std::count(finished.standard_error.begin(), finished.standard_error.end(), '\n'));
        CHECK_EQUAL(1U, folder.count());
    }
}

TEST(failure_of_a_field_that_points_outside_the_file) {
    const ScratchFolder folder;
    std::string damaged = read_file(program("mlp.pte"));
    // A FlatBuffer begins with the place of its root table, and that with the way back to its
    // vtable, which has the place of the second field, the methods, at byte 6.
    std::int32_t root = 0;
    std::int32_t way_back = 0;
    std::memcpy(&root, damaged.data(), sizeof root);
    std::memcpy(&way_back, damaged.data() + root, sizeof way_back);
    damaged.replace(static_cast<std::size_t>(root - way_back + 6), 2, "\xF0\xFF");
    const std::string path = folder.write("m.pte", damaged);
    expect_failure(kModel, path + kNotAProgram + kExportAgain, {"--model", path});
}

TEST(failure_of_a_missing_data_file) {
    expect_failure(
        kModel,
        "cannot read /nowhere/w.ptd (No such file or directory): give the data file as a "
        "file that exists and can be read",
        {"--model", program("external.pte"), "--data=/nowhere/w.ptd"});
}

TEST(failure_of_a_data_file_that_is_none) {
    const std::string data = program("mlp.pte");
    expect_failure(kModel,
                   data +
                       " cannot be loaded (Failed to parse FlatTensor header with error code 32. "
                       "File may be corrupt)" +
                       kExportAgain,
                   {"--model", program("external.pte"), "--data", data});
}

TEST(failure_of_weights_that_are_not_given) {
    const std::string path = program("external.pte");
    expect_failure(
        kMethod,
        "'forward' of " + path +
            " cannot be loaded (external_data_map is null): give its weights with --data "
            "if it has them apart, or export it with this version of ExecuTorch",
        {"--model", path});
}

TEST(failure_of_a_method_that_is_not_there) {
    const std::string path = program("two_methods.pte");
    expect_failure(kMethod,
                   path + " has no method 'backward': choose with --method from: forward, thrice",
                   {"--model", path, "--method=backward"});
}

TEST(failure_of_an_operator_that_is_not_linked) {
    const std::string path = program("missing_operator.pte");
    expect_failure(kMethod,
                   "'forward' of " + path +
                       " needs an operator that this runner lacks (Missing operator: [2] "
                       "aten::tanq.out): export it so that a delegate takes the operator, or link "
                       "its kernel",
                   {"--model", path});
}

TEST(failure_of_an_operator_for_language_models_names_the_preset_that_has_it) {
    const std::string path = program("llm_operator.pte");
    expect_failure(kMethod,
                   "'forward' of " + path +
                       " needs an operator that this runner lacks (Missing operator: [2] "
                       "llama::tan.out): " ETPROF_LLM_WAY_OUT,
                   {"--model", path});
}

TEST(failure_of_a_backend_that_is_not_linked) {
    const std::string path = program("missing_backend.pte");
    expect_failure(kMethod,
                   "'forward' of " + path +
                       " needs a backend that this runner lacks (Backend UnknownBackend is not "
                       "registered): export it for one of: XnnpackBackend",
                   {"--model", path});
}

TEST(failure_of_an_input_of_the_wrong_size) {
    const std::string input = program("mlp_input_0.bin");
    expect_failure(
        kInput,
        input +
            " has 32 bytes, but input 0 of 'forward' takes 3072 bytes for float32 "
            "1x3x16x16: write the tensor as raw little-endian values of that dtype and shape, "
            "or give its shape: as --shapes to etprof-runner, or in a .npy file to etprof",
        {"--model", program("convolutions_fp32.pte"), "--input", input});
}

TEST(failure_of_too_many_inputs) {
    const std::string input = program("mlp_input_0.bin");
    expect_failure(kInput,
                   "--input has 2 values, but 'forward' takes 1 tensors: give one per tensor "
                   "input, in order; etprof-runner --describe lists them",
                   {"--model", program("mlp.pte"), "--input", input, "--input", input});
}

TEST(failure_of_a_missing_input) {
    expect_failure(kInput,
                   "cannot read /nowhere/i.bin (No such file or directory): give the input as a "
                   "file that exists and can be read",
                   {"--model", program("mlp.pte"), "--input=/nowhere/i.bin"});
}

TEST(failure_of_a_shape_beyond_the_bound) {
    expect_failure(kInput,
                   "input 0 of 'forward' cannot take the shape 5x8: its largest shape is 4x8",
                   {"--model", program("dynamic.pte"), "--shapes=5x8"});
}

TEST(failure_of_another_shape_where_it_is_fixed) {
    expect_failure(kInput,
                   "input 0 of 'forward' has the fixed shape 1x8: give it that shape, or export it "
                   "with dynamic shapes",
                   {"--model", program("mlp.pte"), "--shapes=1x7"});
}

TEST(failure_in_the_middle_of_a_run) {
    const std::string path = program("embedding.pte");
    expect_failure(
        kExecution,
        "'forward' of " + path +
            " failed (Check failed (indices_ptr[i] < weight_height): indices_ptr[1] 1000 "
            ">= weight.size(0) 10; failed at instruction 0:0 in operator aten::embedding.out: "
            "0x12): "
            "a kernel refuses what it is given: check the inputs, or ask `etprof export` of the "
            "model "
            "which operator it is",
        {"--model", path, "--input", program("embedding_out_of_range_0.bin")});
}

TEST(failure_of_a_check_inside_executorch_has_the_reason) {
    const ScratchFolder folder;
    std::string damaged = read_file(program("mlp.pte"));
    const std::string path = folder.path("m.pte");
    // Scan for a byte whose change makes ExecuTorch abort: where it is depends on the exporter.
    for (std::size_t position = 400; position < damaged.size(); ++position) {
        std::string copy = damaged;
        copy[position] = '\1';
        folder.write("m.pte", copy);
        const Finished finished =
            run_runner({"--model", path, "--result", "/dev/null", "--iterations=1"});
        if (finished.exit_code == kInternal) {
            CHECK_EQUAL(0U,
                        finished.standard_error.find("etprof-runner: ExecuTorch stopped itself (In "
                                                     "function "));
            CHECK_EQUAL(1, std::count(finished.standard_error.begin(),
                                      finished.standard_error.end(), '\n'));
            return;
        }
    }
    CHECK(!"no change made ExecuTorch abort");
}

TEST(failure_of_a_folder_that_is_not_there) {
    const ScratchFolder folder;
    const std::string path = folder.path("missing/r.json");
    const Finished finished = run_runner({"--model", program("mlp.pte"), "--result", path});
    CHECK_EQUAL(kOutput, finished.exit_code);
    CHECK_EQUAL("etprof-runner: cannot write " + path +
                    " (No such file or directory): choose a path in a folder that exists and can "
                    "be written to\n",
                finished.standard_error);
}

TEST(failure_of_a_full_disk_leaves_nothing) {
    const ScratchFolder folder;
    std::vector<std::string> arguments{"--model",   program("mlp.pte"), "--result",
                                       "/dev/full", "--outputs",        folder.path("o")};
    if (ETPROF_HAS_EVENT_TRACER) {
        arguments.insert(arguments.end(), {"--etdump", folder.path("x.etdump")});
    }
    const Finished finished = run_runner(arguments);
    CHECK_EQUAL(kOutput, finished.exit_code);
    CHECK_EQUAL(
        "etprof-runner: cannot write /dev/full (No space left on device): free some space or "
        "choose another disk\n",
        finished.standard_error);
    CHECK_EQUAL(0U, folder.count());
}

TEST(failure_of_outputs_where_a_file_is_comes_before_the_run) {
    const ScratchFolder folder;
    const std::string path = folder.write("o", "a file");
    const Finished finished = run_runner(
        {"--model=/nowhere/m.pte", "--result", folder.path("r.json"), "--outputs", path});
    CHECK_EQUAL(kOutput, finished.exit_code);
    CHECK_EQUAL("etprof-runner: cannot write " + path +
                    " (Not a directory): choose a path in a folder that exists and can be written "
                    "to\n",
                finished.standard_error);
    CHECK_EQUAL("a file", read_file(path));
    CHECK_EQUAL(1U, folder.count());
}

TEST(failure_to_name_two_files_keeps_the_model) {
    const ScratchFolder folder;
    const std::string content = read_file(program("mlp.pte"));
    const std::string model = folder.write("m.pte", content);
    const std::string result = folder.path("m.json");
    std::filesystem::create_symlink(model, result);
    const Finished finished = run_runner({"--model", model, "--result", result});
    CHECK_EQUAL(kUsage, finished.exit_code);
    CHECK_EQUAL(
        "etprof-runner: --model and --result name the same file " + model + ": give each its own\n",
        finished.standard_error);
    CHECK(content == read_file(model));
}

TEST(failure_keeps_an_older_result) {
    const ScratchFolder folder;
    const std::string result = folder.write("r.json", "old");
    const Finished finished =
        run_runner({"--model", program("missing_backend.pte"), "--result", result});
    CHECK_EQUAL(kMethod, finished.exit_code);
    CHECK_EQUAL("old", read_file(result));
}

}  // namespace
