#include "runner_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "scratch_folder.h"

namespace etprof::testing {
namespace {

/// The runner, behind the emulator that this build needs for it, and what a device needs, if any.
std::vector<std::string> runner_words() {
    std::vector<std::string> words;
    std::stringstream emulator(ETPROF_EMULATOR);
    for (std::string word; std::getline(emulator, word, '|');) {
        words.push_back(word);
    }
    const char* launcher = std::getenv("ETPROF_DEVICE_LAUNCHER");
    std::stringstream before(launcher == nullptr ? "" : launcher);
    for (std::string word; before >> word;) {
        words.push_back(word);
    }
    words.push_back(ETPROF_RUNNER);
    return words;
}

[[noreturn]] void become_runner(std::vector<std::string>& arguments, const std::string& out,
                                const std::string& err) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    std::vector<char*> words;
    for (std::string& argument : arguments) {
        words.push_back(argument.data());
    }
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
}

/// Takes out what XNNPACK logs in a trace build: it is not the runner's.
std::string without_xnnpack_log(const std::string& text) {
    if (!ETPROF_HAS_XNNPACK_LOG) {
        return text;
    }
    std::stringstream lines(text);
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("Note (XNNPACK): ", 0) != 0) {
            kept += line + "\n";
        }
    }
    return kept;
}

}  // namespace

Finished run_runner(std::vector<std::string> arguments) {
    const ScratchFolder folder;
    const std::vector<std::string> runner = runner_words();
    arguments.insert(arguments.begin(), runner.begin(), runner.end());
    const pid_t child = fork();
    if (child == 0) {
        become_runner(arguments, folder.path("out"), folder.path("err"));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) {
        throw std::runtime_error("cannot wait for the runner");
    }
    const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return {exit_code, read_file(folder.path("out")),
            without_xnnpack_log(read_file(folder.path("err")))};
}

std::string program(const std::string& name) { return ETPROF_PROGRAMS "/" + name; }

std::string json_field(const std::string& document, const std::string& name) {
    const std::string key = "\"" + name + "\": ";
    const std::size_t begin = document.find(key);
    if (begin == std::string::npos) {
        throw std::runtime_error("no field " + name + " in:\n" + document);
    }
    std::string text = document.substr(begin + key.size());
    text.resize(text.find('\n'));
    if (!text.empty() && text.back() == ',') {
        text.pop_back();
    }
    return text;
}

std::vector<std::uint64_t> numbers(const std::string& array) {
    std::vector<std::uint64_t> found;
    std::istringstream text(array.substr(1));
    for (std::uint64_t number = 0; text >> number; text.ignore()) {
        found.push_back(number);
    }
    return found;
}

}  // namespace etprof::testing
