// What is said when something inside ExecuTorch goes wrong, and what is left to others (C7).

#include "messages.h"

#include <executorch/runtime/platform/log.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "check.h"
#include "scratch_folder.h"

namespace {

bool is_memory_gone = false;

}  // namespace

void* operator new(std::size_t size_bytes) {
    void* data = is_memory_gone ? nullptr : std::malloc(size_bytes == 0 ? 1 : size_bytes);
    if (data == nullptr) {
        throw std::bad_alloc();
    }
    return data;
}

void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace {

using namespace etprof;
using etprof::testing::ScratchFolder;

constexpr char kCrashed[] =
    "etprof-runner: ExecuTorch crashed: the program may be damaged; export it again\n";

struct End {
    int status;
    std::string standard_error;
};

/// How a child that does this ends; of an emulator's words, none.
End end_of(const std::function<void()>& action) {
    const ScratchFolder folder;
    const std::string path = folder.write("err", "");
    const pid_t child = fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(open(path.c_str(), O_WRONLY), STDERR_FILENO);
        action();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const std::string text = etprof::testing::read_file(path);
    return {status, text.substr(0, text.find("qemu: "))};
}

/// Uses up the stack.
std::uint64_t descend(volatile std::uint64_t* above) {
    volatile std::uint64_t here[1024];
    here[0] = above == nullptr ? 0 : above[0] + 1;
    return here[0] == UINT64_MAX ? 0 : descend(here) + here[0];
}

TEST(crash_is_told_and_ends_by_its_signal) {
    for (const int signal_number : {SIGSEGV, SIGABRT, SIGFPE}) {
        const End end = end_of([signal_number] {
            install_crash_report();
            std::raise(signal_number);
        });
        CHECK(has_sanitizer() ||
              (WIFSIGNALED(end.status) && WTERMSIG(end.status) == signal_number));
        CHECK(has_sanitizer() || end.standard_error == kCrashed);
    }
}

/// What no CPU of these executes: Intel's manual reserves the one, Arm's the other.
__attribute__((noinline)) void do_what_no_cpu_can() {
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile(".inst 0");
#endif
}

TEST(refused_instruction_names_its_file_and_place) {
    if (has_sanitizer()) {
        return;  // it has a report of its own
    }
    const End end = end_of([] {
        install_crash_report();
        do_what_no_cpu_can();
    });
    CHECK(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGILL);
    const std::string begin = "etprof-runner: the CPU refuses an instruction of ";
    CHECK(end.standard_error.rfind(begin, 0) == 0);
    CHECK(end.standard_error.find(" (runner_tests+0x") != std::string::npos);
}

TEST(refused_instruction_is_told_whichever_thread_meets_it_first) {
    if (has_sanitizer()) {
        return;
    }
    const End end = end_of([] {
        install_crash_report();
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back(do_what_no_cpu_can);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    });
    CHECK(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGILL);
    CHECK(end.standard_error.find(" (runner_tests+0x") != std::string::npos);
}

#if !defined(__APPLE__)
TEST(illegal_instruction_that_was_only_sent_names_no_code) {
    const End end = end_of([] {
        install_crash_report();
        std::raise(SIGILL);
    });
    CHECK(has_sanitizer() || end.standard_error == kCrashed);
}
#endif

TEST(crash_of_a_stack_that_is_used_up_is_told) {
    if (has_sanitizer()) {
        return;
    }
    const End end = end_of([] {
        install_crash_report();
        descend(nullptr);
    });
    CHECK(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV);
    CHECK_EQUAL(kCrashed, end.standard_error);
}

TEST(crash_goes_on_to_whoever_handled_it_before) {
    for (const bool is_fault : {true, false}) {
        if (is_fault && has_sanitizer()) {
            continue;  // a sanitizer ends the program before the null pointer is written to
        }
        const End end = end_of([is_fault] {
            // As Android's linker does for its tombstones, before any program begins.
            std::signal(SIGSEGV, [](int) { _exit(42); });
            install_crash_report();
            if (is_fault) {
                volatile int* nowhere = nullptr;
                *nowhere = 1;
            }
            std::raise(SIGSEGV);
        });
        CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 42);
        CHECK_EQUAL(has_sanitizer() ? "" : kCrashed, end.standard_error);
    }
}

TEST(failures_of_several_threads_leave_one_line) {
    const End end = end_of([] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back(
                [] { std::_Exit(report_failure(ExitCode::kInternal, "one\nof eight")); });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    });
    CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 70);
    CHECK_EQUAL("etprof-runner: one?of eight\n", end.standard_error);
}

/// S3-6: a destructor that failed after what it was called for waited for a signal, for ever.
TEST(second_failure_of_a_thread_ends_it_too) {
    const End end = end_of([] {
        alarm(20);
        report_failure(ExitCode::kInput, "the first");
        _exit(report_failure(ExitCode::kInternal, "the second"));
    });
    CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 70);
    CHECK_EQUAL("etprof-runner: the first\n", end.standard_error);
}

/// S3-6: the thread that failed first waits for the one that failed after it.
TEST(failure_that_waits_for_another_thread_ends) {
    const End end = end_of([] {
        alarm(20);
        report_failure(ExitCode::kInput, "the first");
        std::thread([] { report_failure(ExitCode::kInternal, "the second"); }).join();
        _exit(4);
    });
    CHECK(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 4);
    CHECK_EQUAL("etprof-runner: the first\n", end.standard_error);
}

TEST(failure_of_any_length_is_one_line) {
    const End end = end_of([] {
        const std::string message(1 << 20, 'x');
        _exit(report_failure(ExitCode::kInput, message.c_str()));
    });
    CHECK_EQUAL(4, WEXITSTATUS(end.status));
    CHECK_EQUAL(1, std::count(end.standard_error.begin(), end.standard_error.end(), '\n'));
    CHECK_EQUAL('\n', end.standard_error.back());
}

TEST(log_without_memory_throws_nothing_at_executorch) {
    capture_runtime_log();
    clear_runtime_errors();
    is_memory_gone = true;
    ET_LOG(Error, "a message of more characters than a string holds without memory of its own");
    is_memory_gone = false;
    CHECK(find_runtime_error("").empty());
    ET_LOG(Error, "a message that is kept, of more characters than fit into a string itself");
    CHECK_EQUAL(std::string("a message that"), find_runtime_error("").substr(0, 14));
}

}  // namespace
