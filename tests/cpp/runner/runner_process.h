#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etprof::testing {

/// A run of the real etprof-runner that ended.
struct Finished {
    /// Negative signal number if it died from one.
    int exit_code;
    std::string standard_output;
    std::string standard_error;
};

/// Runs the built runner with these arguments.
Finished run_runner(std::vector<std::string> arguments);

/// Path of a file that make_programs.py made.
std::string program(const std::string& name);

/// The text after `"name": ` in a JSON document up to the end of its line, without its comma.
std::string json_field(const std::string& document, const std::string& name);

/// The whole numbers of a JSON array.
std::vector<std::uint64_t> numbers(const std::string& array);

}  // namespace etprof::testing
