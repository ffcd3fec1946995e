#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "check.h"
#include "files.h"

namespace {

/// Ends as the signal asks although nothing interrupts the wait: the signal came before it.
[[noreturn]] void wait_after_signal(int signal_number) {
    int ends[2];
    // What a defect would wait for without end.
    std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(20));
        _exit(4);
    }).detach();
    if (pipe(ends) != 0) {
        _exit(1);
    }
    {
        const etprof::SignalHold hold;
        std::raise(signal_number);
        char byte = 0;
        const ssize_t count = read(ends[0], &byte, 1);
        if (count != -1 || errno != EINTR) {
            _exit(2);
        }
    }
    _exit(3);
}

TEST(signal_hold_interrupts_a_wait_that_begins_after_the_signal) {
    for (const int signal_number : {SIGHUP, SIGINT, SIGTERM}) {
        std::signal(signal_number, SIG_DFL);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            wait_after_signal(signal_number);
        }
        int status = 0;
        CHECK_EQUAL(child, waitpid(child, &status, 0));
        CHECK(WIFSIGNALED(status));
        CHECK_EQUAL(signal_number, WTERMSIG(status));
    }
}

}  // namespace
