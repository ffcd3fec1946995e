#include "options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/runner_error.h"

namespace etprof {
namespace {

using Text = const std::string&;

[[noreturn]] void refuse(const std::string& what_happened, const std::string& way_out) {
    throw RunnerError(ExitCode::kUsage, what_happened, way_out);
}

[[noreturn]] void refuse_value(Text flag, Text value, Text expected) {
    refuse(flag + " is '" + value + "'", expected);
}

std::vector<std::string> split_list(Text flag, Text value) {
    std::vector<std::string> items = split(value, ',');
    if (std::find(items.begin(), items.end(), "") != items.end()) {
        refuse_value(flag, value, "give a list without empty items, separated by commas");
    }
    return items;
}

/// Sets what a flag is for.
using Effect = void (*)(Options& options, Text flag, Text value);

template <Action action>
void ask(Options& options, Text, Text) {
    options.action = action;
}

template <auto member>
void switch_on(Options& options, Text, Text) {
    options.*member = true;
}

/// A text, or one more of them.
template <auto member>
void take_text(Options& options, Text flag, Text value) {
    if (value.empty()) {
        refuse_value(flag, value, "give it a value");
    }
    if constexpr (std::is_same_v<decltype(member), std::vector<std::string> Options::*>) {
        (options.*member).push_back(value);
    } else {
        options.*member = value;
    }
}

template <auto member, std::uint64_t least, std::uint64_t most>
void take_count(Options& options, Text flag, Text value) {
    std::uint64_t count = 0;
    if (!parse_integer(value, count) || count < least || count > most) {
        refuse_value(
            flag, value,
            "give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    options.*member = count;
}

template <auto member>
void take_seconds(Options& options, Text flag, Text value) {
    char* stop = nullptr;
    const double seconds = std::strtod(value.c_str(), &stop);
    // strtod takes leading spaces and hexadecimal too.
    const bool whole = value.find_first_not_of("0123456789.eE+-") == std::string::npos &&
                       !value.empty() && stop == value.c_str() + value.size();
    if (!whole || !(seconds > 0) || seconds > 86400) {
        refuse_value(flag, value, "give a number of seconds above 0, at most 86400");
    }
    options.*member = seconds;
}

void take_shapes(Options& options, Text flag, Text value) {
    options.shapes = split_list(flag, value);
}

void take_load_mode(Options& options, Text flag, Text value) {
    if (value != "file" && value != "mmap") {
        refuse_value(flag, value, "give file or mmap");
    }
    options.is_mapped = value == "mmap";
}

void take_sme(Options& options, Text flag, Text value) {
    const std::optional<SmeMode> mode = parse_sme_mode(value);
    if (!mode) {
        refuse_value(flag, value, "give auto, sme2, sme1 or off");
    }
    options.sme = *mode;
}

void take_prompt(Options& options, Text flag, Text value) {
    for (const std::string& item : split_list(flag, value)) {
        if (!parse_integer(item, options.prompt_tokens.emplace_back())) {
            refuse_value(flag, item, "give token ids as whole numbers, separated by commas");
        }
    }
}

struct Flag {
    const char* name;
    /// Empty for a flag without a value.
    const char* value_name;
    const char* help;
    Effect effect;
};

constexpr std::uint64_t kMostIterations = 1'000'000'000;
constexpr std::uint64_t kMostTokens = 10'000'000;
constexpr std::uint64_t kMostSteps = 1024;

const Flag kFlags[] = {
    {"--model", "M.pte", "the program to run", take_text<&Options::model_path>},
    {"--data", "F.ptd", "the file that holds the program's external weights",
     take_text<&Options::data_path>},
    {"--input", "A.bin", "a tensor input, raw little-endian; repeat it for more, in their order",
     take_text<&Options::input_paths>},
    {"--shapes", "1x3x96x96,...",
     "actual shapes of the tensor inputs (default: the largest); int64:1x3 to have the type "
     "checked",
     take_shapes},
    {"--method", "NAME", "the method to run (default: forward)", take_text<&Options::method>},
    {"--iterations", "N", "timed iterations; with --min-seconds, at least N (default: 10)",
     take_count<&Options::iterations, 1, kMostIterations>},
    {"--min-seconds", "S", "go on until the timed iterations took S seconds as well",
     take_seconds<&Options::min_seconds>},
    {"--warmup", "N", "iterations between the first inference and the timed ones (default: 3)",
     take_count<&Options::warmup, 0, kMostIterations>},
    {"--warmup-seconds", "S", "warm up for at least S seconds as well",
     take_seconds<&Options::warmup_seconds>},
    {"--warmup-steady", "", "warm up until the latencies settle, for at most 10 s more",
     switch_on<&Options::warmup_steady>},
    {"--cold-inputs", "", "take the inputs out of the caches before each inference",
     switch_on<&Options::cold_inputs>},
    {"--threads", "N", "size of the thread pool (default: ExecuTorch's choice)",
     take_count<&Options::threads, 1, 1024>},
    {"--seed", "N", "seed of the inputs that are made up when no file is given (default: 0)",
     take_count<&Options::seed, 0, UINT64_MAX>},
    {"--load-mode", "file|mmap", "read the program, or map it (default: file)", take_load_mode},
    {"--etdump", "F.etdump", "attach the event tracer and write what it saw",
     take_text<&Options::etdump_path>},
    {"--sme", "MODE", "SME kernels that may run: auto, sme2, sme1 or off", take_sme},
    {"--kernel-trace", "F.json", "count microkernels and time operators (trace builds only)",
     take_text<&Options::kernel_trace_path>},
    {"--outputs", "DIR", "write the outputs of the first inference as DIR/output_<i>.bin",
     take_text<&Options::outputs_dir>},
    {"--output-steps", "N", "and of the next, to the Nth, as DIR/output_<i>_step_<n>.bin",
     take_count<&Options::output_steps, 1, kMostSteps>},
    {"--step-inputs", "", "each --input holds the values of all --output-steps inferences in a row",
     switch_on<&Options::has_step_inputs>},
    {"--result", "F.json", "where the measurements go", take_text<&Options::result_path>},
    {"--generate", "N", "generate N tokens in each iteration, greedily, from --prompt-tokens",
     take_count<&Options::new_tokens, 1, kMostTokens>},
    {"--prompt-tokens", "1,2,3", "token ids of the prompt", take_prompt},
    {"--prefill-method", "NAME", "reads the prompt (default: prefill, else the decode method)",
     take_text<&Options::prefill_method>},
    {"--decode-method", "NAME", "adds one token (default: decode, else forward)",
     take_text<&Options::decode_method>},
    {"--stream-tokens", "", "print each iteration's tokens, one a line, as they are known",
     switch_on<&Options::stream_tokens>},
    {"--observer-lines", "", "print a PyTorchObserver line for each timed iteration",
     switch_on<&Options::observer_lines>},
    {"--describe", "", "print the program's methods, inputs and outputs as JSON; run nothing",
     ask<Action::kDescribe>},
    {"--cpu-info", "", "print this CPU and its features as JSON", ask<Action::kCpuInfo>},
    {"--build-info", "", "print what this runner was built with as JSON", ask<Action::kBuildInfo>},
    {"--help", "", "print this text", ask<Action::kHelp>},
    {"--version", "", "print the version", ask<Action::kVersion>},
};

/// The flags that were given, with their values.
using Seen = std::multimap<std::string, std::string>;

/// Reads `--name value` and `--name=value`.
Seen read_flags(const std::vector<std::string>& arguments, Options& options) {
    Seen seen;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::size_t equals = arguments[i].find('=');
        const std::string name = arguments[i].substr(0, equals);
        const Flag* flag = std::find_if(std::begin(kFlags), std::end(kFlags),
                                        [&name](const Flag& each) { return each.name == name; });
        if (flag == std::end(kFlags)) {
            refuse("unknown flag " + name, "--help lists them");
        }
        if (seen.count(name) != 0 && name != "--input") {
            refuse(name + " is given twice", "give it once");
        }
        std::string value;
        if (equals != std::string::npos) {
            value = arguments[i].substr(equals + 1);
            if (*flag->value_name == '\0') {
                refuse(name + " takes no value", "write " + name + " alone");
            }
        } else if (*flag->value_name != '\0') {
            if (i + 1 == arguments.size() || arguments[i + 1].rfind("--", 0) == 0) {
                refuse(name + " has no value", "write " + name + " " + flag->value_name);
            }
            value = arguments[++i];
        }
        flag->effect(options, name, value);
        seen.emplace(name, value);
    }
    return seen;
}

void require_flag(const Seen& seen, Text flag, Text example) {
    if (seen.count(flag) == 0) {
        refuse(flag + " is missing", "add " + flag + " " + example + " (see --help)");
    }
}

/// Refuses flags that --generate needs, or that mean nothing with or without it.
void require_whole_generation(const Seen& seen, const Options& options) {
    if (options.generates()) {
        require_flag(seen, "--prompt-tokens", "1,2,3");
    }
    const auto refuse_any = [&seen](const std::vector<std::string>& flags, Text problem,
                                    Text way_out) {
        for (const std::string& flag : flags) {
            if (seen.count(flag) != 0) {
                refuse(flag + problem, way_out);
            }
        }
    };
    if (options.generates()) {
        refuse_any({"--method", "--kernel-trace", "--outputs", "--output-steps", "--step-inputs",
                    "--input", "--shapes", "--cold-inputs"},
                   " and --generate are given together",
                   "leave it out: the prompt and the new tokens are inputs and outputs, of "
                   "--prefill-method and --decode-method");
    } else {
        refuse_any({"--prompt-tokens", "--prefill-method", "--decode-method", "--stream-tokens",
                    "--observer-lines"},
                   " is given without --generate", "add --generate N, the number of new tokens");
    }
}

/// Refuses to keep the outputs of inferences that nobody keeps, or that are not run.
void require_steps(const Seen& seen, const Options& options) {
    if (options.has_step_inputs) {
        require_flag(seen, "--output-steps", "N");
        require_flag(seen, "--input", "A.bin");
    }
    if (seen.count("--output-steps") == 0) {
        return;
    }
    require_flag(seen, "--outputs", "DIR");
    const std::uint64_t inferences = 1 + options.warmup + options.iterations;
    if (options.output_steps > inferences) {
        refuse("--output-steps is more than the " + std::to_string(inferences) +
                   " inferences that are run",
               "give --iterations " + std::to_string(options.output_steps) + " or more");
    }
}

/// Where a file is, or would be, by whatever names and links.
std::filesystem::path place_of(const std::filesystem::path& given) {
    std::error_code failure;
    // With a name at its end, for a slash there would count.
    return std::filesystem::weakly_canonical(std::filesystem::absolute(given, failure) / ".",
                                             failure);
}

void require_distinct_files(const Seen& seen, const Options& options) {
    using Named = std::pair<std::string, std::filesystem::path>;
    std::map<std::filesystem::path, Named> files;
    const auto refuse_both = [](const Named& file, Text other) {
        refuse(file.first + " and " + other + " name the same file " +
                   file.second.lexically_normal().string(),
               "give each its own");
    };
    const auto add = [&](Text flag, const std::filesystem::path& path, bool is_written) {
        const auto [file, is_new] = files.try_emplace(place_of(path), flag, path);
        if (is_written && !is_new) {
            refuse_both(file->second, flag);
        }
        if (options.outputs_dir && path.filename().string().rfind("output_", 0) == 0 &&
            place_of(path.parent_path()) == place_of(*options.outputs_dir)) {
            refuse_both({flag, path}, "--outputs");
        }
    };
    for (const char* flag : {"--model", "--input", "--data"}) {
        for (auto [given, end] = seen.equal_range(flag); given != end; ++given) {
            add(flag, given->second, false);
        }
    }
    for (const char* flag : {"--etdump", "--kernel-trace", "--result"}) {
        if (const auto given = seen.find(flag); given != seen.end()) {
            add(flag, given->second, true);
        }
    }
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> items{""};
    for (const char letter : text) {
        if (letter == separator) {
            items.emplace_back();
        } else {
            items.back() += letter;
        }
    }
    return items;
}

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    const Seen seen = read_flags(arguments, options);
    require_whole_generation(seen, options);
    if (options.action == Action::kRun || options.action == Action::kDescribe) {
        require_flag(seen, "--model", "M.pte");
    }
    if (options.action == Action::kRun) {
        require_flag(seen, "--result", "F.json");
        require_steps(seen, options);
        require_distinct_files(seen, options);
    }
    return options;
}

std::string help_text() {
    std::string text =
        "etprof-runner: loads an ExecuTorch program, runs it and writes what it measured.\n\n"
        "usage: etprof-runner --model M.pte --result F.json [flags]\n\n";
    for (const Flag& flag : kFlags) {
        std::string left = "  " + std::string(flag.name) + " " + flag.value_name;
        left.resize(std::max(left.size() + 2, std::size_t{28}), ' ');
        text += left + flag.help + "\n";
    }
    return text +
           "\nInputs that are not given are made up from --seed: floats from [-1, 1), integers 0 "
           "or 1\n(valid indices into any table of two rows), booleans by coin toss.\n"
           "Exit codes: 0 ok, 2 flags, 3 program or data file, 4 inputs, 5 method, 6 execution,\n"
           "7 outputs, 8 SME mode, 70 internal.\n";
}

}  // namespace etprof
