// Token generation with the built runner: the right tokens, their times, and every way to fail.

#include <cstdint>
#include <sstream>

#include "check.h"
#include "runner_process.h"
#include "scratch_folder.h"

namespace {

using namespace etprof;
using namespace etprof::testing;

/// What make_programs.py's language models say after `prompt`, computed without a cache.
std::vector<std::int64_t> expected_tokens(std::vector<std::int64_t> prompt, std::size_t count) {
    const std::size_t begin = prompt.size();
    while (prompt.size() < begin + count) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            sum += prompt[i] * static_cast<std::int64_t>(i + 1);
        }
        prompt.push_back(sum % 16);
    }
    return {prompt.begin() + static_cast<std::ptrdiff_t>(begin), prompt.end()};
}

std::string join(const std::vector<std::int64_t>& tokens, const std::string& separator) {
    std::string text;
    for (const std::int64_t token : tokens) {
        text += (text.empty() ? "" : separator) + std::to_string(token);
    }
    return text;
}

/// A generation of seven tokens that must succeed; its result stays at hand.
class Generated {
 public:
    Generated(const std::string& model, const std::vector<std::int64_t>& prompt,
              std::vector<std::string> more = {}) {
        std::vector<std::string> arguments{"--model",         program(model),
                                           "--result",        folder_.path("result.json"),
                                           "--generate",      "7",
                                           "--prompt-tokens", join(prompt, ","),
                                           "--iterations",    "2",
                                           "--warmup",        "1"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Finished finished = run_runner(arguments);
        CHECK_EQUAL("", finished.standard_error);
        CHECK_EQUAL(0, finished.exit_code);
        standard_output = finished.standard_output;
        result_ = read_file(folder_.path("result.json"));
        CHECK_EQUAL("[" + join(expected_tokens(prompt, 7), ", ") + "]", field("tokens"));
    }

    std::string field(const std::string& name) const { return json_field(result_, name); }

    std::string standard_output;

 private:
    ScratchFolder folder_;
    std::string result_;
};

TEST(generation_reads_the_prompt_with_one_method_and_goes_on_with_another) {
    const Generated generated("lm_shared.pte", {3, 1, 4, 1});
    CHECK_EQUAL("4", generated.field("prefilled_tokens"));
    CHECK_EQUAL("\"prefill\"", generated.field("prefill_method"));
    CHECK_EQUAL("\"decode\"", generated.field("decode_method"));
    CHECK_EQUAL("\"decode\"", generated.field("method"));
    CHECK_EQUAL("16", generated.field("cache_tokens"));
    CHECK_EQUAL("", generated.standard_output);
}

TEST(generation_feeds_what_is_beyond_the_prefill_one_by_one) {
    const Generated generated("lm_shared.pte", {3, 1, 4, 1, 5, 9});
    CHECK_EQUAL("4", generated.field("prefilled_tokens"));
}

TEST(generation_feeds_a_prompt_below_a_fixed_prefill_one_by_one) {
    const Generated generated("lm_shared.pte", {3, 1});
    CHECK_EQUAL("0", generated.field("prefilled_tokens"));
}

TEST(generation_takes_a_prompt_of_any_length_where_shapes_are_dynamic) {
    for (const auto& prompt : std::vector<std::vector<std::int64_t>>{{7}, {3, 1, 4}}) {
        const Generated generated("lm_dynamic.pte", prompt);
        const std::size_t at_once = prompt.size() == 1 ? 0 : prompt.size();
        CHECK_EQUAL(std::to_string(at_once), generated.field("prefilled_tokens"));
        CHECK_EQUAL("\"forward\"", generated.field("prefill_method"));
    }
    const Generated longer("lm_dynamic.pte", {1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK_EQUAL("8", longer.field("prefilled_tokens"));
}

TEST(generation_needs_only_a_method_of_one_token) {
    const Generated generated("lm_step.pte", {3, 1, 4});
    CHECK_EQUAL("0", generated.field("prefilled_tokens"));
}

TEST(generation_without_a_shared_cache_feeds_the_prompt_by_decode_steps) {
    const Generated generated("lm_unshared.pte", {3, 1, 4, 1}, {"--prefill-method=decode"});
    CHECK_EQUAL("0", generated.field("prefilled_tokens"));
}

TEST(generation_times_add_up) {
    const Generated generated("lm_shared.pte", {3, 1, 4, 1});
    const std::vector<std::uint64_t> latencies = numbers(generated.field("token_latency_ns"));
    CHECK_EQUAL(6U, latencies.size());
    std::uint64_t sum = std::stoull(generated.field("time_to_first_token_ns"));
    CHECK(std::stoull(generated.field("prefill_ns")) < sum);
    for (const std::uint64_t latency : latencies) {
        sum += latency;
    }
    // Whole nanoseconds of one clock, each difference exact.
    CHECK_EQUAL(std::stoull(generated.field("total_ns")), sum);
    const std::vector<std::uint64_t> totals = numbers(generated.field("latency_ns"));
    CHECK_EQUAL(2U, totals.size());
    CHECK_EQUAL(sum, totals[0]);
}

TEST(generation_streams_the_tokens_of_every_repetition) {
    const Generated generated("lm_shared.pte", {3, 1, 4, 1}, {"--stream-tokens"});
    const std::string tokens = join(expected_tokens({3, 1, 4, 1}, 7), "\n") + "\n";
    std::string expected;
    for (const char* number : {"0", "1", "2", "3"}) {
        expected += std::string("repetition ") + number + "\n" + tokens;
    }
    CHECK_EQUAL(expected, generated.standard_output);
}

TEST(generation_prints_an_observer_line_for_each_timed_repetition) {
    const Generated generated("lm_shared.pte", {3, 1, 4, 1}, {"--observer-lines"});
    const std::string start = R"(PyTorchObserver {"prompt_tokens":4,"generated_tokens":7,)";
    CHECK_EQUAL(start, generated.standard_output.substr(0, start.size()));
    CHECK(generated.standard_output.find("\n" + start) != std::string::npos);
    const std::string end = R"("SCALING_FACTOR_UNITS_PER_SECOND":1000})";
    CHECK(generated.standard_output.find(end + "\n") != std::string::npos);
}

/// Expects failure: `line` is all of stderr but the name.
void expect_failure(int exit_code, const std::string& line, const std::string& model,
                    std::vector<std::string> more) {
    const ScratchFolder folder;
    std::vector<std::string> arguments{"--model", program(model), "--result",
                                       folder.path("r.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run_runner(arguments);
    CHECK_EQUAL("etprof-runner: " + line + "\n", finished.standard_error);
    CHECK_EQUAL(exit_code, finished.exit_code);
    CHECK_EQUAL(0U, folder.count());
}

TEST(generation_fails_for_an_unknown_token) {
    for (const char* id : {"16", "-1"}) {
        expect_failure(4,
                       std::string("--prompt-tokens has the id ") + id +
                           ", but the model knows 16 tokens: give ids from 0 to 15, made by the "
                           "model's own tokenizer",
                       "lm_shared.pte", {"--generate=2", std::string("--prompt-tokens=1,") + id});
    }
}

TEST(generation_fails_for_what_is_no_list_of_tokens) {
    for (const char* word : {"one", "1.5", "99999999999999999999"}) {
        expect_failure(2,
                       std::string("--prompt-tokens is '") + word +
                           "': give token ids as whole numbers, separated by commas",
                       "lm_shared.pte", {"--generate=2", std::string("--prompt-tokens=1,") + word});
    }
    expect_failure(2,
                   "--prompt-tokens is ',': give a list without empty items, separated by commas",
                   "lm_shared.pte", {"--generate=2", "--prompt-tokens=,"});
}

TEST(generation_fails_for_more_tokens_than_the_cache_holds) {
    expect_failure(4,
                   "4 prompt tokens and 14 new ones need 17 places, but the cache has 16: shorten "
                   "the prompt, or lower --generate",
                   "lm_shared.pte", {"--generate=14", "--prompt-tokens=1,2,3,4"});
    // The last token is never read, so one more than there is room for can be said.
    const ScratchFolder folder;
    const Finished finished =
        run_runner({"--model", program("lm_shared.pte"), "--result", folder.path("r.json"),
                    "--generate=13", "--prompt-tokens=1,2,3,4"});
    CHECK_EQUAL(0, finished.exit_code);
}

TEST(generation_fails_for_a_method_that_is_not_there) {
    expect_failure(5,
                   program("lm_step.pte") +
                       " has no method 'decode': choose with --decode-method from: forward",
                   "lm_step.pte", {"--generate=2", "--prompt-tokens=1", "--decode-method=decode"});
    expect_failure(5,
                   program("lm_shared.pte") +
                       " has no method 'read': choose with --prefill-method from: decode, prefill",
                   "lm_shared.pte", {"--generate=2", "--prompt-tokens=1", "--prefill-method=read"});
}

TEST(generation_fails_for_a_program_that_is_no_language_model) {
    expect_failure(5,
                   "'forward' cannot generate tokens (it does not take two tensors of integers): "
                   "export it with a key-value cache, so that it takes token ids and positions and "
                   "gives scores",
                   "mlp.pte", {"--generate=2", "--prompt-tokens=1"});
}

TEST(generation_fails_for_a_decode_method_of_several_tokens) {
    expect_failure(5,
                   "'prefill' takes 4 tokens at once, not one: export a method that adds one "
                   "token, or with dynamic shapes",
                   "lm_shared.pte",
                   {"--generate=2", "--prompt-tokens=1,2,3,4", "--decode-method=prefill"});
}

TEST(generation_fails_for_methods_with_a_cache_each) {
    expect_failure(5,
                   "'prefill' and 'decode' of " + program("lm_unshared.pte") +
                       " do not share their key-value cache: export it with "
                       "share_mutable_buffers=True, as `etprof export` does, or feed the prompt by "
                       "decode steps: --prefill-method decode",
                   "lm_unshared.pte", {"--generate=2", "--prompt-tokens=1"});
}

TEST(generation_fails_for_scores_that_are_no_numbers) {
    expect_failure(6,
                   "'forward' scores tokens with NaN: export it in float32, or keep its values "
                   "within float16's range",
                   "lm_not_a_number.pte", {"--generate=2", "--prompt-tokens=1"});
}

TEST(generation_fails_when_repetitions_differ) {
    expect_failure(6,
                   "repetition 1 has the token 5 at place 0, where the first had 2: export the "
                   "program so that position 0 starts anew; it keeps more than its cache",
                   "lm_counting.pte", {"--generate=2", "--prompt-tokens=1,1"});
}

TEST(generation_goes_with_the_flags_of_generation_only) {
    expect_failure(2, "--prompt-tokens is missing: add --prompt-tokens 1,2,3 (see --help)",
                   "lm_shared.pte", {"--generate=2"});
    for (const char* flag : {"--method", "--input"}) {
        expect_failure(2,
                       std::string(flag) +
                           " and --generate are given together: leave it out: the prompt and the "
                           "new tokens are inputs and outputs, of --prefill-method and "
                           "--decode-method",
                       "lm_shared.pte", {"--generate=2", "--prompt-tokens=1", flag, "x"});
    }
    expect_failure(2,
                   "--stream-tokens is given without --generate: add --generate N, the number of "
                   "new tokens",
                   "lm_shared.pte", {"--stream-tokens"});
    expect_failure(2, "--generate is '0': give a whole number from 1 to 10000000", "lm_shared.pte",
                   {"--generate=0", "--prompt-tokens=1"});
}

}  // namespace
