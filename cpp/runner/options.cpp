#include "options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "distinct_files.h"
#include "runner_error.h"

namespace etprof {
namespace {

using Text = const std::string&;

[[noreturn]] void refuse_value(std::string_view flag, Text value, Text expected) {
    throw RunnerError(ExitCode::kUsage, std::string(flag) + " is '" + value + "'", expected);
}

std::uint64_t parse_count(std::string_view flag, Text value, std::uint64_t least,
                          std::uint64_t most) {
    std::uint64_t count = 0;
    const char* end = value.data() + value.size();
    const auto [stop, failure] = std::from_chars(value.data(), end, count);
    if (failure != std::errc{} || stop != end || count < least || count > most) {
        refuse_value(
            flag, value,
            "give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return count;
}

double parse_seconds(std::string_view flag, Text value) {
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

std::string parse_path(std::string_view flag, Text value) {
    if (value.empty()) {
        refuse_value(flag, value, "give a path");
    }
    return value;
}

LoadMode parse_load_mode(std::string_view flag, Text value) {
    if (value == "file") {
        return LoadMode::kFile;
    }
    if (value == "mmap") {
        return LoadMode::kMmap;
    }
    refuse_value(flag, value, "give file or mmap");
}

SmeMode parse_sme(std::string_view flag, Text value) {
    const std::optional<SmeMode> mode = parse_sme_mode(value);
    if (!mode) {
        refuse_value(flag, value, "give auto, sme2, sme1 or off");
    }
    return *mode;
}

std::vector<std::string> split_list(std::string_view flag, Text value) {
    std::vector<std::string> items;
    std::size_t begin = 0;
    while (begin <= value.size()) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        if (end == begin) {
            refuse_value(flag, value, "give a list without empty items, separated by commas");
        }
        items.push_back(value.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

void append(std::vector<std::string>& list, std::vector<std::string> more) {
    list.insert(list.end(), more.begin(), more.end());
}

struct Flag {
    std::string_view name;
    /// Empty for a flag without a value.
    std::string_view value_name;
    std::string_view help;
    void (*apply)(Options&, std::string_view flag, Text value);
    bool repeatable = false;
};

constexpr std::uint64_t kMostIterations = 1'000'000'000;
constexpr std::uint64_t kMostTokens = 10'000'000;

constexpr std::array kFlags{
    Flag{"--model", "M.pte", "the program to run",
         [](Options& o, std::string_view, Text value) { o.model_path = value; }},
    Flag{"--data", "F.ptd", "the file that holds the program's external weights",
         [](Options& o, std::string_view flag, Text value) {
             o.data_path = parse_path(flag, value);
         }},
    Flag{"--inputs", "A.bin,B.bin", "tensors, raw little-endian or .npy, one file per tensor input",
         [](Options& o, std::string_view flag, Text value) {
             append(o.input_paths, split_list(flag, value));
         },
         true},
    Flag{"--input", "A.bin", "one such file, commas in its name allowed; repeat it for more",
         [](Options& o, std::string_view flag, Text value) {
             o.input_paths.push_back(parse_path(flag, value));
         },
         true},
    Flag{"--shapes", "1x3x96x96,...", "actual shapes of the tensor inputs (default: the largest)",
         [](Options& o, std::string_view flag, Text value) { o.shapes = split_list(flag, value); }},
    Flag{"--method", "NAME", "the method to run (default: forward)",
         [](Options& o, std::string_view, Text value) { o.method = value; }},
    Flag{"--iterations", "N", "timed iterations; with --min-seconds, at least N (default: 10)",
         [](Options& o, std::string_view flag, Text value) {
             o.iterations = parse_count(flag, value, 1, kMostIterations);
         }},
    Flag{"--min-seconds", "S", "go on until the timed iterations took S seconds as well",
         [](Options& o, std::string_view flag, Text value) {
             o.min_seconds = parse_seconds(flag, value);
         }},
    Flag{"--warmup", "N", "iterations between the first inference and the timed ones (default: 3)",
         [](Options& o, std::string_view flag, Text value) {
             o.warmup = parse_count(flag, value, 0, kMostIterations);
         }},
    Flag{"--warmup-seconds", "S", "warm up for at least S seconds as well",
         [](Options& o, std::string_view flag, Text value) {
             o.warmup_seconds = parse_seconds(flag, value);
         }},
    Flag{"--warmup-steady", "", "warm up until the latencies settle, for at most 10 s more",
         [](Options& o, std::string_view, Text) { o.warmup_steady = true; }},
    Flag{"--cold-inputs", "", "take the inputs out of the caches before each inference",
         [](Options& o, std::string_view, Text) { o.cold_inputs = true; }},
    Flag{"--threads", "N", "size of the thread pool (default: ExecuTorch's choice)",
         [](Options& o, std::string_view flag, Text value) {
             o.threads = static_cast<std::uint32_t>(parse_count(flag, value, 1, 1024));
         }},
    Flag{"--seed", "N", "seed of the inputs that are made up when no file is given (default: 0)",
         [](Options& o, std::string_view flag, Text value) {
             o.seed = parse_count(flag, value, 0, UINT64_MAX);
         }},
    Flag{"--load-mode", "file|mmap", "read the program, or map it (default: file)",
         [](Options& o, std::string_view flag, Text value) {
             o.load_mode = parse_load_mode(flag, value);
         }},
    Flag{"--etdump", "F.etdump", "attach the event tracer and write what it saw",
         [](Options& o, std::string_view flag, Text value) {
             o.etdump_path = parse_path(flag, value);
         }},
    Flag{"--sme", "MODE", "SME kernels that may run: auto, sme2, sme1 or off",
         [](Options& o, std::string_view flag, Text value) { o.sme = parse_sme(flag, value); }},
    Flag{"--kernel-trace", "F.json", "count microkernels and time operators (trace builds only)",
         [](Options& o, std::string_view flag, Text value) {
             o.kernel_trace_path = parse_path(flag, value);
         }},
    Flag{"--outputs", "DIR", "write the outputs of the last inference as DIR/output_<i>.bin",
         [](Options& o, std::string_view flag, Text value) {
             o.outputs_dir = parse_path(flag, value);
         }},
    Flag{"--result", "F.json", "where the measurements go",
         [](Options& o, std::string_view, Text value) { o.result_path = value; }},
    Flag{"--generate", "N", "generate N tokens in each iteration, greedily, from --prompt-tokens",
         [](Options& o, std::string_view flag, Text value) {
             o.generation.new_tokens = parse_count(flag, value, 1, kMostTokens);
         }},
    Flag{"--prompt-tokens", "1,2,3|FILE", "token ids of the prompt, or a file that holds them",
         [](Options& o, std::string_view, Text value) { o.generation.prompt_tokens = value; }},
    Flag{"--prefill-method", "NAME", "reads the prompt (default: prefill, else the decode method)",
         [](Options& o, std::string_view, Text value) { o.generation.prefill_method = value; }},
    Flag{"--decode-method", "NAME", "adds one token (default: decode, else forward)",
         [](Options& o, std::string_view, Text value) { o.generation.decode_method = value; }},
    Flag{"--stream-tokens", "", "print each iteration's tokens, one a line, as they are known",
         [](Options& o, std::string_view, Text) { o.generation.stream_tokens = true; }},
    Flag{"--observer-lines", "", "print a PyTorchObserver line for each timed iteration",
         [](Options& o, std::string_view, Text) { o.generation.observer_lines = true; }},
    Flag{"--describe", "", "print the program's methods, inputs and outputs as JSON; run nothing",
         [](Options& o, std::string_view, Text) { o.action = Action::kDescribe; }},
    Flag{"--cpu-info", "", "print this CPU and its features as JSON",
         [](Options& o, std::string_view, Text) { o.action = Action::kCpuInfo; }},
    Flag{"--build-info", "", "print what this runner was built with as JSON",
         [](Options& o, std::string_view, Text) { o.action = Action::kBuildInfo; }},
    Flag{"--help", "", "print this text",
         [](Options& o, std::string_view, Text) { o.action = Action::kHelp; }},
    Flag{"--version", "", "print the version",
         [](Options& o, std::string_view, Text) { o.action = Action::kVersion; }},
};

/// Levenshtein distance, for suggestions.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

std::string_view nearest_flag(std::string_view name) {
    const auto nearer = [name](const Flag& a, const Flag& b) {
        return edit_distance(name, a.name) < edit_distance(name, b.name);
    };
    return std::min_element(kFlags.begin(), kFlags.end(), nearer)->name;
}

const Flag& find_flag(std::string_view name) {
    const auto found = std::find_if(kFlags.begin(), kFlags.end(),
                                    [name](const Flag& flag) { return flag.name == name; });
    if (found != kFlags.end()) {
        return *found;
    }
    if (name.substr(0, 1) != "-") {
        throw RunnerError(ExitCode::kUsage, "unexpected argument '" + std::string(name) + "'",
                          "every value follows its flag, such as --model M.pte");
    }
    throw RunnerError(ExitCode::kUsage, "unknown flag " + std::string(name),
                      "did you mean " + std::string(nearest_flag(name)) + "? See --help");
}

/// Walks the arguments; accepts `--name value` and `--name=value`.
class ArgumentReader {
 public:
    explicit ArgumentReader(const std::vector<std::string>& arguments) : arguments_(arguments) {}

    Options read() {
        while (next_ < arguments_.size()) {
            read_flag(arguments_[next_++]);
        }
        return options_;
    }

    bool has(std::string_view flag) const { return seen_.count(flag) != 0; }

 private:
    void read_flag(const std::string& argument) {
        const std::size_t equals = argument.find('=');
        const Flag& flag = find_flag(std::string_view(argument).substr(0, equals));
        if (!seen_.insert(flag.name).second && !flag.repeatable) {
            throw RunnerError(ExitCode::kUsage, std::string(flag.name) + " is given twice",
                              "give it once");
        }
        const bool inline_value = equals != std::string::npos;
        if (flag.value_name.empty() && inline_value) {
            throw RunnerError(ExitCode::kUsage, std::string(flag.name) + " takes no value",
                              "write " + std::string(flag.name) + " alone");
        }
        flag.apply(options_, flag.name,
                   inline_value ? argument.substr(equals + 1) : take_value(flag));
    }

    std::string take_value(const Flag& flag) {
        if (flag.value_name.empty()) {
            return "";
        }
        const bool missing = next_ == arguments_.size() || arguments_[next_].rfind("--", 0) == 0;
        if (missing) {
            throw RunnerError(
                ExitCode::kUsage, std::string(flag.name) + " has no value",
                "write " + std::string(flag.name) + " " + std::string(flag.value_name));
        }
        return arguments_[next_++];
    }

    const std::vector<std::string>& arguments_;
    std::size_t next_ = 0;
    std::set<std::string_view> seen_;
    Options options_;
};

void require_value(std::string_view flag, Text value, Text example) {
    if (value.empty()) {
        throw RunnerError(ExitCode::kUsage, std::string(flag) + " is missing",
                          "add " + std::string(flag) + " " + example + " (see --help)");
    }
}

/// Refuses flags that --generate needs, or that mean nothing with or without it.
void require_whole_generation(const ArgumentReader& reader, const Options& options) {
    const auto together = [&reader](std::string_view flag, Text way_out) {
        if (reader.has(flag)) {
            throw RunnerError(ExitCode::kUsage,
                              std::string(flag) + " and --generate are given together", way_out);
        }
    };
    if (options.generates()) {
        require_value("--prompt-tokens", options.generation.prompt_tokens, "1,2,3");
        together("--method", "name the methods with --prefill-method and --decode-method");
        together("--kernel-trace", "trace one of the methods by itself, with --method");
        together("--outputs", "leave it out, for the tokens are in the result");
        for (const char* flag : {"--inputs", "--input", "--shapes", "--cold-inputs"}) {
            together(flag, "leave it out, for the prompt and the new tokens are the inputs");
        }
        return;
    }
    for (const char* flag : {"--prompt-tokens", "--prefill-method", "--decode-method",
                             "--stream-tokens", "--observer-lines"}) {
        if (reader.has(flag)) {
            throw RunnerError(ExitCode::kUsage, std::string(flag) + " is given without --generate",
                              "add --generate N, the number of new tokens");
        }
    }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    ArgumentReader reader(arguments);
    Options options = reader.read();
    require_whole_generation(reader, options);
    if (options.action == Action::kRun || options.action == Action::kDescribe) {
        require_value("--model", options.model_path, "M.pte");
    }
    if (options.action == Action::kRun) {
        require_value("--result", options.result_path, "F.json");
        require_distinct_files(options);
    }
    return options;
}

std::string help_text() {
    std::string text =
        "etprof-runner: loads an ExecuTorch program, runs it and writes what it measured.\n\n"
        "usage: etprof-runner --model M.pte --result F.json [flags]\n\n";
    for (const Flag& flag : kFlags) {
        std::string left = "  " + std::string(flag.name) + " " + std::string(flag.value_name);
        left.resize(std::max(left.size() + 2, std::size_t{28}), ' ');
        text += left + std::string(flag.help) + "\n";
    }
    return text +
           "\nInputs that are not given are made up from --seed: floats from [-1, 1), integers 0 "
           "or "
           "1\n(valid indices into any table of two rows), booleans by coin toss.\n"
           "Exit codes: 0 ok, 2 flags, 3 program or data file, 4 inputs, 5 method, 6 execution,\n"
           "7 outputs, 8 SME mode, 70 internal.\n";
}

}  // namespace etprof
