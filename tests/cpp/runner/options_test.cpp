#include "options.h"

#include "base/runner_error.h"
#include "check.h"
#include "scratch_folder.h"

namespace {

using namespace etprof;
using etprof::testing::ScratchFolder;

Options parse(std::vector<std::string> more) {
    std::vector<std::string> arguments{"--model", "m.pte", "--result", "r.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_options(arguments);
}

/// What the command line with `more` is refused with.
std::string refusal(std::vector<std::string> more) {
    const RunnerError error = CATCH(RunnerError, parse(more));
    CHECK_EQUAL(2, static_cast<int>(error.code()));
    return error.what();
}

TEST(options_have_documented_defaults) {
    const Options options = parse({});
    CHECK_EQUAL("forward", options.method);
    CHECK_EQUAL(10U, options.iterations);
    CHECK_EQUAL(3U, options.warmup);
    CHECK_EQUAL(0U, options.seed);
    CHECK(!options.threads && options.min_seconds == 0 && !options.etdump_path);
    CHECK(!options.is_mapped);
}

TEST(options_take_values_after_a_space_or_an_equals_sign) {
    const Options options = parse({"--iterations=7", "--warmup", "0", "--method=a=b"});
    CHECK_EQUAL(7U, options.iterations);
    CHECK_EQUAL(0U, options.warmup);
    CHECK_EQUAL("a=b", options.method);
}

TEST(options_read_every_number) {
    const Options options =
        parse({"--min-seconds=0.5", "--threads=4", "--seed=18446744073709551615"});
    CHECK_EQUAL(0.5, options.min_seconds);
    CHECK_EQUAL(4U, *options.threads);
    CHECK_EQUAL(UINT64_MAX, options.seed);
}

TEST(options_take_an_input_with_a_comma_and_more_of_them) {
    const Options options = parse({"--input", "a.bin", "--input", "c,d.bin"});
    CHECK_EQUAL(2U, options.input_paths.size());
    CHECK_EQUAL("c,d.bin", options.input_paths[1]);
}

TEST(options_refuse_an_unknown_flag_by_its_name) {
    CHECK_EQUAL("unknown flag --iteration: --help lists them", refusal({"--iteration", "5"}));
    CHECK_EQUAL("unknown flag --thread: --help lists them", refusal({"--thread=1"}));
    CHECK_EQUAL("unknown flag m.pte: --help lists them", refusal({"m.pte"}));
}

TEST(options_refuse_numbers_that_are_none) {
    for (const char* value : {"", "x", "-1", "1.5", "0", "1000000001", "5 ", "0x10"}) {
        CHECK_EQUAL(std::string("--iterations is '") + value +
                        "': give a whole number from 1 to 1000000000",
                    refusal({std::string("--iterations=") + value}));
    }
}

TEST(options_refuse_seconds_that_are_none) {
    for (const char* value :
         {"", "x", "0", "-2", "nan", "inf", "1s", "86401", " 1", "0x1", "1e400"}) {
        CHECK_EQUAL(std::string("--min-seconds is '") + value +
                        "': give a number of seconds above 0, at most 86400",
                    refusal({std::string("--min-seconds=") + value}));
    }
}

TEST(options_refuse_a_flag_without_its_value) {
    CHECK_EQUAL("--threads has no value: write --threads N", refusal({"--threads"}));
    CHECK_EQUAL("--outputs has no value: write --outputs DIR", refusal({"--outputs", "--seed=1"}));
}

TEST(options_refuse_a_value_for_a_flag_that_takes_none) {
    CHECK_EQUAL("--help takes no value: write --help alone", refusal({"--help=yes"}));
}

TEST(options_refuse_a_flag_given_twice) {
    CHECK_EQUAL("--seed is given twice: give it once", refusal({"--seed=1", "--seed=2"}));
}

TEST(options_refuse_empty_items_of_a_list) {
    for (const char* value : {"", ",", "1x2,", "1x2,,3"}) {
        CHECK_EQUAL(std::string("--shapes is '") + value +
                        "': give a list without empty items, separated by commas",
                    refusal({std::string("--shapes=") + value}));
    }
}

TEST(options_refuse_an_unknown_load_mode) {
    CHECK_EQUAL("--load-mode is 'ram': give file or mmap", refusal({"--load-mode=ram"}));
}

TEST(options_require_model_and_result) {
    const auto no_model = CATCH(RunnerError, parse_options({"--result", "r.json"}));
    CHECK_EQUAL("--model is missing: add --model M.pte (see --help)", std::string(no_model.what()));
    const auto no_result = CATCH(RunnerError, parse_options({"--model", "m.pte"}));
    CHECK_EQUAL("--result is missing: add --result F.json (see --help)",
                std::string(no_result.what()));
}

TEST(options_refuse_to_overwrite_one_file_with_another) {
    CHECK_EQUAL("--etdump and --result name the same file r.json: give each its own",
                refusal({"--etdump", "./r.json"}));
    CHECK_EQUAL("--model and --etdump name the same file m.pte: give each its own",
                refusal({"--etdump", "m.pte"}));
    CHECK_EQUAL("--input and --result name the same file r.json: give each its own",
                refusal({"--input", "a.bin", "--input", "r.json"}));
}

TEST(options_know_a_file_by_all_its_names) {
    const ScratchFolder folder;
    const std::string model = folder.write("m.pte", "");
    std::filesystem::create_symlink(model, folder.path("link"));
    std::filesystem::create_directory_symlink(folder.path(""), folder.path("folder"));
    const std::string relative = std::filesystem::relative(model).string();
    for (const std::string& result : {relative, folder.path("link"), folder.path("folder/m.pte")}) {
        const auto error =
            CATCH(RunnerError, parse_options({"--model", model, "--result", result}));
        CHECK_EQUAL("--model and --result name the same file " + model + ": give each its own",
                    std::string(error.what()));
    }
}

TEST(options_refuse_a_file_where_the_outputs_go) {
    for (const char* path : {"o/output_0.bin", "o/x/../output_12.bin"}) {
        CHECK_EQUAL("--etdump and --outputs name the same file " +
                        std::filesystem::path(path).lexically_normal().string() +
                        ": give each its own",
                    refusal({"--outputs=o/", std::string("--etdump=") + path}));
    }
    CHECK_EQUAL("--input and --outputs name the same file o/output_0.bin: give each its own",
                refusal({"--outputs", "o", "--input", "o/output_0.bin"}));
    for (const char* path : {"o/outputs.bin", "o/x/output_0.bin", "output_0.bin"}) {
        CHECK_EQUAL(path, *parse({"--outputs=o", "--etdump", path}).etdump_path);
    }
}

TEST(options_refuse_an_empty_path) {
    for (const char* flag : {"--data", "--input", "--etdump", "--kernel-trace", "--outputs"}) {
        CHECK_EQUAL(std::string(flag) + " is '': give it a value", refusal({flag, ""}));
    }
}

TEST(options_need_no_model_to_describe_cpu_or_build) {
    CHECK(parse_options({"--cpu-info"}).action == Action::kCpuInfo);
    CHECK(parse_options({"--build-info"}).action == Action::kBuildInfo);
    CHECK(parse_options({"--version"}).action == Action::kVersion);
}

TEST(help_names_every_flag_and_exit_code) {
    const std::string help = help_text();
    for (const char* part : {"--model M.pte", "--min-seconds S", "--describe", "70 internal"}) {
        CHECK(help.find(part) != std::string::npos);
    }
}

}  // namespace
