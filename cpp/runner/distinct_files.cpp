#include "distinct_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "runner_error.h"

namespace etprof {
namespace {

using std::filesystem::path;

struct NamedFile {
    std::string_view flag;
    std::string given;
    path place;
};

/// Where the file is or would be, without links and relative parts.
path find_place(const std::string& given) {
    std::error_code failure;
    path absolute = std::filesystem::absolute(given, failure).lexically_normal();
    if (!absolute.has_filename()) {
        absolute = absolute.parent_path();
    }
    const path place = std::filesystem::weakly_canonical(absolute, failure);
    return failure ? absolute : place;
}

/// Whether a file of this name can be one of those that --outputs writes.
bool is_output_name(const std::string& name) {
    constexpr std::string_view kBegin = "output_";
    constexpr std::string_view kEnd = ".bin";
    if (name.size() <= kBegin.size() + kEnd.size() || name.rfind(kBegin, 0) != 0 ||
        name.substr(name.size() - kEnd.size()) != kEnd) {
        return false;
    }
    return std::all_of(name.begin() + kBegin.size(), name.end() - kEnd.size(),
                       [](unsigned char character) { return std::isdigit(character) != 0; });
}

void add(std::vector<NamedFile>& files, std::string_view flag,
         const std::optional<std::string>& given) {
    if (given) {
        files.push_back({flag, *given, find_place(*given)});
    }
}

[[noreturn]] void refuse(const NamedFile& file, std::string_view other_flag) {
    throw RunnerError(ExitCode::kUsage,
                      std::string(file.flag) + " and " + std::string(other_flag) +
                          " name the same file " + path(file.given).lexically_normal().string(),
                      "give each its own");
}

void require_outside(const NamedFile& file, const path& outputs) {
    const bool is_output =
        file.place.parent_path() == outputs && is_output_name(file.place.filename().string());
    if (is_output || file.place == outputs) {
        refuse(file, "--outputs");
    }
}

}  // namespace

void require_distinct_files(const Options& options) {
    std::vector<NamedFile> files;
    add(files, "--model", options.model_path);
    add(files, "--data", options.data_path);
    for (const std::string& input : options.input_paths) {
        add(files, "--input", input);
    }
    const std::size_t written_begin = files.size();
    add(files, "--etdump", options.etdump_path);
    add(files, "--kernel-trace", options.kernel_trace_path);
    add(files, "--result", options.result_path);
    for (std::size_t written = written_begin; written < files.size(); ++written) {
        for (std::size_t other = 0; other < written; ++other) {
            if (files[written].place == files[other].place) {
                refuse(files[other], files[written].flag);
            }
        }
    }
    if (options.outputs_dir) {
        const path outputs = find_place(*options.outputs_dir);
        for (const NamedFile& file : files) {
            require_outside(file, outputs);
        }
    }
}

}  // namespace etprof
