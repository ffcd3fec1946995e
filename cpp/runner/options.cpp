#include "options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "runner_error.h"

namespace etprof {
namespace {

using Text = const std::string&;

[[noreturn]] void refuse(const std::string& what_happened, const std::string& way_out) {
    throw RunnerError(ExitCode::kUsage, what_happened, way_out);
}

[[noreturn]] void refuse_value(Text flag, Text value, Text expected) {
    refuse(flag + " is '" + value + "'", expected);
}

template <typename Integer>
bool parse_integer(std::string_view text, Integer& number) {
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, number);
    return failure == std::errc{} && stop == end;
}

std::uint64_t parse_count(Text flag, Text value, std::uint64_t least, std::uint64_t most) {
    std::uint64_t count = 0;
    if (!parse_integer(value, count) || count < least || count > most) {
        refuse_value(
            flag, value,
            "give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return count;
}

double parse_seconds(Text flag, Text value) {
    char* stop = nullptr;
    const double seconds = std::strtod(value.c_str(), &stop);
    // strtod takes leading spaces and hexadecimal too.
    const bool whole = value.find_first_not_of("0123456789.eE+-") == std::string::npos &&
                       !value.empty() && stop == value.c_str() + value.size();
    if (!whole || !(seconds > 0) || seconds > 86400) {
        refuse_value(flag, value, "give a number of seconds above 0, at most 86400");
    }
    return seconds;
}

std::vector<std::string> split_list(Text flag, Text value) {
    std::vector<std::string> items;
    for (std::size_t begin = 0; begin <= value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        if (end == begin) {
            refuse_value(flag, value, "give a list without empty items, separated by commas");
        }
        items.push_back(value.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

void parse_load_mode(Options& options, Text flag, Text value) {
    if (value != "file" && value != "mmap") {
        refuse_value(flag, value, "give file or mmap");
    }
    options.load_mode = value == "mmap" ? LoadMode::kMmap : LoadMode::kFile;
}

void parse_sme(Options& options, Text flag, Text value) {
    const std::optional<SmeMode> mode = parse_sme_mode(value);
    if (!mode) {
        refuse_value(flag, value, "give auto, sme2, sme1 or off");
    }
    options.sme = *mode;
}

void parse_prompt(Options& options, Text flag, Text value) {
    for (const std::string& item : split_list(flag, value)) {
        if (!parse_integer(item, options.prompt_tokens.emplace_back())) {
            refuse_value(flag, item, "give token ids as whole numbers, separated by commas");
        }
    }
}

/// A number from `least` to `most`.
template <typename Member>
struct Number {
    Member member;
    std::uint64_t least;
    std::uint64_t most;
};

/// What a flag sets.
using Effect = std::variant<Action, bool Options::*, std::string Options::*,
                            std::optional<std::string> Options::*, std::optional<double> Options::*,
                            std::vector<std::string> Options::*, Number<std::uint64_t Options::*>,
                            Number<std::optional<std::uint64_t> Options::*>,
                            void (*)(Options&, Text flag, Text value)>;

struct Flag {
    const char* name;
    /// Empty for a flag without a value.
    const char* value_name;
    const char* help;
    Effect effect;
};

using Count = Number<std::uint64_t Options::*>;
using OptionalCount = Number<std::optional<std::uint64_t> Options::*>;
constexpr std::uint64_t kMostIterations = 1'000'000'000;
constexpr std::uint64_t kMostTokens = 10'000'000;

const Flag kFlags[] = {
    {"--model", "M.pte", "the program to run", &Options::model_path},
    {"--data", "F.ptd", "the file that holds the program's external weights", &Options::data_path},
    {"--input", "A.bin", "a tensor input, raw little-endian; repeat it for more, in their order",
     &Options::input_paths},
    {"--shapes", "1x3x96x96,...",
     "actual shapes of the tensor inputs (default: the largest); int64:1x3 to have the type "
     "checked",
     [](Options& o, Text flag, Text value) { o.shapes = split_list(flag, value); }},
    {"--method", "NAME", "the method to run (default: forward)", &Options::method},
    {"--iterations", "N", "timed iterations; with --min-seconds, at least N (default: 10)",
     Count{&Options::iterations, 1, kMostIterations}},
    {"--min-seconds", "S", "go on until the timed iterations took S seconds as well",
     &Options::min_seconds},
    {"--warmup", "N", "iterations between the first inference and the timed ones (default: 3)",
     Count{&Options::warmup, 0, kMostIterations}},
    {"--warmup-seconds", "S", "warm up for at least S seconds as well", &Options::warmup_seconds},
    {"--warmup-steady", "", "warm up until the latencies settle, for at most 10 s more",
     &Options::warmup_steady},
    {"--cold-inputs", "", "take the inputs out of the caches before each inference",
     &Options::cold_inputs},
    {"--threads", "N", "size of the thread pool (default: ExecuTorch's choice)",
     OptionalCount{&Options::threads, 1, 1024}},
    {"--seed", "N", "seed of the inputs that are made up when no file is given (default: 0)",
     Count{&Options::seed, 0, UINT64_MAX}},
    {"--load-mode", "file|mmap", "read the program, or map it (default: file)", parse_load_mode},
    {"--etdump", "F.etdump", "attach the event tracer and write what it saw",
     &Options::etdump_path},
    {"--sme", "MODE", "SME kernels that may run: auto, sme2, sme1 or off", parse_sme},
    {"--kernel-trace", "F.json", "count microkernels and time operators (trace builds only)",
     &Options::kernel_trace_path},
    {"--outputs", "DIR", "write the outputs of the last inference as DIR/output_<i>.bin",
     &Options::outputs_dir},
    {"--result", "F.json", "where the measurements go", &Options::result_path},
    {"--generate", "N", "generate N tokens in each iteration, greedily, from --prompt-tokens",
     Count{&Options::new_tokens, 1, kMostTokens}},
    {"--prompt-tokens", "1,2,3", "token ids of the prompt", parse_prompt},
    {"--prefill-method", "NAME", "reads the prompt (default: prefill, else the decode method)",
     &Options::prefill_method},
    {"--decode-method", "NAME", "adds one token (default: decode, else forward)",
     &Options::decode_method},
    {"--stream-tokens", "", "print each iteration's tokens, one a line, as they are known",
     &Options::stream_tokens},
    {"--observer-lines", "", "print a PyTorchObserver line for each timed iteration",
     &Options::observer_lines},
    {"--describe", "", "print the program's methods, inputs and outputs as JSON; run nothing",
     Action::kDescribe},
    {"--cpu-info", "", "print this CPU and its features as JSON", Action::kCpuInfo},
    {"--build-info", "", "print what this runner was built with as JSON", Action::kBuildInfo},
    {"--help", "", "print this text", Action::kHelp},
    {"--version", "", "print the version", Action::kVersion},
};

/// Carries out a flag's effect.
struct Applied {
    Options& options;
    Text flag;
    Text value;

    void operator()(Action action) const { options.action = action; }
    void operator()(bool Options::* member) const { options.*member = true; }
    template <typename T>
    void operator()(Number<T> number) const {
        options.*number.member = parse_count(flag, value, number.least, number.most);
    }
    void operator()(std::optional<double> Options::* member) const {
        options.*member = parse_seconds(flag, value);
    }
    void operator()(std::vector<std::string> Options::* member) const {
        (options.*member).push_back(require_text());
    }
    void operator()(std::string Options::* member) const { options.*member = require_text(); }
    void operator()(std::optional<std::string> Options::* member) const {
        options.*member = require_text();
    }
    void operator()(void (*parse)(Options&, Text, Text)) const { parse(options, flag, value); }

    Text require_text() const {
        if (value.empty()) {
            refuse_value(flag, value, "give it a value");
        }
        return value;
    }
};

/// Names of the flags that were given.
using Seen = std::set<std::string>;

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
        if (!seen.insert(name).second && name != "--input") {
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
        std::visit(Applied{options, name, value}, flag->effect);
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
        refuse_any(
            {"--method", "--kernel-trace", "--outputs", "--input", "--shapes", "--cold-inputs"},
            " and --generate are given together",
            "leave it out: the prompt and the new tokens are inputs and outputs, of "
            "--prefill-method and --decode-method");
    } else {
        refuse_any({"--prompt-tokens", "--prefill-method", "--decode-method", "--stream-tokens",
                    "--observer-lines"},
                   " is given without --generate", "add --generate N, the number of new tokens");
    }
}

/// Whether these are one file, or would be, by whatever names and links.
bool is_same(const std::string& a, const std::string& b) {
    std::error_code failure;
    const auto place = [&failure](const std::string& given) {
        // With a name at its end, for a slash there would count.
        return std::filesystem::weakly_canonical(std::filesystem::absolute(given, failure) / ".",
                                                 failure);
    };
    return place(a) == place(b);
}

void require_distinct_files(const Options& options) {
    std::vector<std::pair<std::string, std::string>> files{{"--model", options.model_path}};
    for (const std::string& input : options.input_paths) {
        files.emplace_back("--input", input);
    }
    const std::size_t first_written = files.size() + (options.data_path ? 1 : 0);
    for (const auto& [flag, given] :
         {std::pair("--data", options.data_path), std::pair("--etdump", options.etdump_path),
          std::pair("--kernel-trace", options.kernel_trace_path),
          std::pair("--result", std::optional(options.result_path))}) {
        if (given) {
            files.emplace_back(flag, *given);
        }
    }
    const auto refuse_both = [](const auto& file, Text other) {
        refuse(file.first + " and " + other + " name the same file " +
                   std::filesystem::path(file.second).lexically_normal().string(),
               "give each its own");
    };
    for (std::size_t i = 0; i < files.size(); ++i) {
        for (std::size_t j = std::max(i + 1, first_written); j < files.size(); ++j) {
            if (is_same(files[i].second, files[j].second)) {
                refuse_both(files[i], files[j].first);
            }
        }
        const std::filesystem::path file(files[i].second);
        if (options.outputs_dir && file.filename().string().rfind("output_", 0) == 0 &&
            is_same(file.parent_path().string(), *options.outputs_dir)) {
            refuse_both(files[i], "--outputs");
        }
    }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    const Seen seen = read_flags(arguments, options);
    require_whole_generation(seen, options);
    if (options.action == Action::kRun || options.action == Action::kDescribe) {
        require_flag(seen, "--model", "M.pte");
    }
    if (options.action == Action::kRun) {
        require_flag(seen, "--result", "F.json");
        require_distinct_files(options);
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
