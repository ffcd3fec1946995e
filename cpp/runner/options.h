#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "sme_mode/sme_mode.h"

namespace etprof {

/// What the caller asked for: a run, or one of the questions that need none.
enum class Action { kRun, kDescribe, kCpuInfo, kBuildInfo, kHelp, kVersion };

/// The command line, checked.
struct Options {
    Action action = Action::kRun;
    std::string model_path;
    std::optional<std::string> data_path;
    std::vector<std::string> input_paths;
    /// One text per tensor input, such as "1x3x224x224"; empty: the shapes of the method.
    std::vector<std::string> shapes;
    std::string method = "forward";
    /// The least number of timed iterations, whatever `min_seconds` says.
    std::uint64_t iterations = 10;
    double min_seconds = 0;
    std::uint64_t warmup = 3;
    double warmup_seconds = 0;
    /// Warm up until the latencies settle.
    bool warmup_steady = false;
    /// Take the inputs out of the caches before each execution.
    bool cold_inputs = false;
    std::optional<std::uint64_t> threads;
    std::uint64_t seed = 0;
    /// Map the program instead of reading it.
    bool is_mapped = false;
    std::optional<std::string> etdump_path;
    SmeMode sme = default_sme_mode();
    std::optional<std::string> kernel_trace_path;
    std::optional<std::string> outputs_dir;
    /// Inferences, from the first, whose outputs are kept; a program with state has others at each.
    std::uint64_t output_steps = 1;
    /// Whether each input file holds the values of all those inferences.
    bool has_step_inputs = false;
    std::string result_path;

    /// Tokens that each iteration generates; 0: none, an iteration is one execution of the method.
    std::uint64_t new_tokens = 0;
    std::vector<std::int64_t> prompt_tokens;
    std::optional<std::string> prefill_method;
    std::optional<std::string> decode_method;
    bool stream_tokens = false;
    bool observer_lines = false;

    bool generates() const { return new_tokens != 0; }
};

/// Reads the arguments after the program's name. Throws RunnerError (kUsage) that names the flag;
/// also for a file that would be written over another, by whatever names and links the two are
/// given.
Options parse_options(const std::vector<std::string>& arguments);

/// What stands between the separators, which may be nothing.
std::vector<std::string> split(const std::string& text, char separator);

/// Whether the whole of `text` is a number of this type.
template <typename Integer>
bool parse_integer(const std::string& text, Integer& number) {
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, number);
    return failure == std::errc{} && stop == end;
}

/// The text of --help.
std::string help_text();

}  // namespace etprof
