#include "signal_hold.h"

#include <unistd.h>

#include <iterator>

namespace etprof {
namespace {

volatile std::sig_atomic_t held_signal = 0;

extern "C" void hold_signal(int signal_number) {
    held_signal = signal_number;
    // A signal that came just before a call that waits did not interrupt it, so it is rung again.
    alarm(1);
}

extern "C" void ring_again(int) { alarm(1); }

}  // namespace

SignalHold::SignalHold() {
    held_signal = 0;
    struct sigaction action{};
    action.sa_handler = ring_again;
    sigaction(SIGALRM, &action, &previous_alarm_);
    action.sa_handler = hold_signal;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &action, &previous_[i]);
        if (previous_[i].sa_handler == SIG_IGN) {
            // As nohup asks for.
            sigaction(kSignals[i], &previous_[i], nullptr);
        }
    }
}

SignalHold::~SignalHold() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &previous_[i], nullptr);
    }
    alarm(0);
    sigaction(SIGALRM, &previous_alarm_, nullptr);
    if (held_signal != 0) {
        std::raise(held_signal);
    }
}

}  // namespace etprof
