#include "messages.h"

#include <dlfcn.h>
#include <executorch/runtime/platform/platform.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

#if !defined(__APPLE__)
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());
#endif

namespace etprof {
namespace {

constexpr std::size_t kMostErrors = 16;
constexpr unsigned kLongestEnd = 2;  // seconds
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

#if defined(__APPLE__)
constexpr bool kTellsSentSignals = false;
#else
constexpr bool kTellsSentSignals = true;
#endif

std::atomic_flag has_spoken = ATOMIC_FLAG_INIT;
/// Whether this thread has: a destructor may fail after what it is called for.
thread_local bool is_speaker = false;
struct sigaction previous_actions[std::size(kCrashes)];

/// Kernels log from the threads of the pool.
std::mutex log_mutex;
std::vector<std::string> logged_errors;
char fatal_message[1024] = "no reason given";

/// Which code has an instruction that the CPU does not execute, by the names that its library
/// exports: Python reads this line, and looks in the runner's own symbols for others. Leaves the
/// line as it is where the address is in no file: after a jump to nowhere.
///
/// POSIX lists neither dladdr nor snprintf among what a handler may call: the one takes the
/// loader's lock, which a thread that computes does not hold, the other no memory for these
/// formats.
template <std::size_t kSize>
void describe_refusal(char (&line)[kSize], const void* address) {
    Dl_info code{};
    if (dladdr(address, &code) == 0 || code.dli_fname == nullptr) {
        return;
    }
    const char* const slash = std::strrchr(code.dli_fname, '/');
    const auto offset =
        static_cast<const char*>(address) - static_cast<const char*>(code.dli_fbase);
    std::snprintf(line, kSize,
                  "etprof-runner: the CPU refuses an instruction of %.2000s (%.1000s+0x%tx)\n",
                  code.dli_sname == nullptr ? "unnamed code" : code.dli_sname,
                  slash == nullptr ? code.dli_fname : slash + 1, offset);
}

extern "C" void report_crash(int signal_number, siginfo_t* info, void*) {
    char line[4096] =
        "etprof-runner: ExecuTorch crashed: the program may be damaged; export it again\n";
    if (!has_spoken.test_and_set()) {
        is_speaker = true;
        if (signal_number == SIGILL && info->si_code > 0) {
            describe_refusal(line, info->si_addr);
        }
        [[maybe_unused]] const auto written = write(STDERR_FILENO, line, std::strlen(line));
    } else if (!is_speaker) {
        // All threads of the pool crash in one kernel: the first one speaks before the process
        // ends.
        sleep(kLongestEnd);
    }
    const int* const crash = std::find(std::begin(kCrashes), std::end(kCrashes), signal_number);
    sigaction(signal_number, &previous_actions[crash - kCrashes], nullptr);
    // What the CPU complained of, it does again on return; a signal that was sent is sent again.
    // macOS gives every SIGILL and SIGSEGV the code of a fault (bsd/dev/arm/unix_signal.c of xnu).
    if (signal_number == SIGABRT || info->si_code <= 0 || !kTellsSentSignals) {
        raise(signal_number);
    }
}

/// ExecuTorch, which calls this, takes no exception: a message that finds no memory is lost.
void keep_message(et_timestamp_t, et_pal_log_level_t level, const char*, const char*, std::size_t,
                  const char* message, std::size_t length) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    length -= length > 0 && message[length - 1] == '.' ? 1 : 0;
    if (level == kFatal) {
        std::snprintf(fatal_message, sizeof fatal_message, "%.*s", static_cast<int>(length),
                      message);
    } else if (level == kError && logged_errors.size() < kMostErrors) {
        try {
            logged_errors.emplace_back(message, length);
        } catch (const std::bad_alloc&) {
            return;
        }
    }
}

void stop_process() {
    char message[sizeof fatal_message + 128];
    {
        const std::lock_guard<std::mutex> lock(log_mutex);
        std::snprintf(message, sizeof message,
                      "ExecuTorch stopped itself (%s): the program may be damaged; export it again",
                      fatal_message);
    }
    std::_Exit(report_failure(ExitCode::kInternal, message));
}

}  // namespace

int report_failure(ExitCode code, const char* message) noexcept {
    char line[8192];
    std::snprintf(line, sizeof line - 1, "etprof-runner: %s", message);
    const std::size_t length = std::strlen(line);
    std::replace_if(
        line, line + length, [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; }, '?');
    line[length] = '\n';
    if (!has_spoken.test_and_set()) {
        is_speaker = true;
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length + 1);
    } else if (!is_speaker) {
        // The first thread ends the process, unless it waits for this one.
        sleep(kLongestEnd);
    }
    return static_cast<int>(code);
}

bool has_sanitizer() {
#if defined(__APPLE__)
    return dlsym(RTLD_DEFAULT, "__sanitizer_set_death_callback") != nullptr;
#else
    return __sanitizer_set_death_callback != nullptr;
#endif
}

void install_crash_report() {
    if (has_sanitizer()) {
        return;
    }
    // Of its own, for a stack that is used up; as large as the registers of SME need.
    alignas(64) static char stack_memory[256 << 10];
    stack_t stack{};
    stack.ss_sp = stack_memory;
    stack.ss_size = sizeof stack_memory;
    sigaltstack(&stack, nullptr);
    struct sigaction action{};
    action.sa_sigaction = report_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
        sigaction(kCrashes[i], &action, &previous_actions[i]);
    }
}

void print(const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0) {
        throw RunnerError(ExitCode::kOutput,
                          std::string("cannot write to stdout (") + std::strerror(errno) + ")",
                          "send it to a file on a disk with space, or a program that reads it");
    }
}

void capture_runtime_log() {
    executorch::runtime::register_pal(executorch::runtime::PalImpl::create(
        nullptr, stop_process, nullptr, nullptr, keep_message, nullptr, nullptr, __FILE__));
}

void clear_runtime_errors() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    logged_errors.clear();
}

std::string reason_for(executorch::runtime::Error error) {
    const std::string reason = find_runtime_error("");
    return reason.empty() ? to_string(error) : reason;
}

std::string find_runtime_error(const std::string& part) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    for (const std::string& error : logged_errors) {
        const std::size_t position = error.find(part);
        if (position != std::string::npos) {
            return error.substr(position);
        }
    }
    return "";
}

}  // namespace etprof
