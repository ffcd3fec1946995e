#pragma once

#include <csignal>

namespace etprof {

/// While it lives, SIGHUP, SIGINT and SIGTERM interrupt system calls that wait, and nothing else.
/// One that came ends the process when the hold does: what was half written is gone by then.
class SignalHold {
 public:
    SignalHold();
    ~SignalHold();

    SignalHold(const SignalHold&) = delete;
    SignalHold& operator=(const SignalHold&) = delete;

 private:
    static constexpr int kSignals[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction previous_[3]{};
    struct sigaction previous_alarm_{};
};

}  // namespace etprof
