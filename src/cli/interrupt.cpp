#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace bastion::cli::interrupt {

namespace {

constexpr int kExitCode = 130;

// Lock-free atomics are the only objects a signal handler may share with the program.
std::atomic<int> signals{0};
std::atomic<bool> terminate{false};
std::atomic<int> limit{2};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_signal(int number) {
    if (number == SIGTERM) terminate = true;
    if (signals.fetch_add(1) + 1 >= limit) _exit(kExitCode);
}

}  // namespace

void install() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: a read from the terminal must return so that the prompt can end
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

bool requested() { return signals > 0; }

bool termination_requested() { return terminate; }

void clear() {
    if (!terminate) signals = 0;
}

void exit_on_first() {
    limit = 1;
    if (requested()) _exit(kExitCode);
}

}  // namespace bastion::cli::interrupt
