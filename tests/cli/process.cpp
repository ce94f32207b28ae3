#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "../model/support.h"

#ifndef BASTION_BINARY
#error "the tests of the program need its path in BASTION_BINARY"
#endif

namespace bastion::testing {

namespace {

struct Pipe {
    int read_end = -1, write_end = -1;
    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
        read_end = ends[0];
        write_end = ends[1];
    }
    ~Pipe() {
        close_read();
        close_write();
    }
    void close_read() { close(read_end); }
    void close_write() { close(write_end); }

 private:
    static void close(int& end) {
        if (end >= 0) ::close(end);
        end = -1;
    }
};

/// In the child: never returns.
[[noreturn]] void become_program(const Run& run, const Pipe& in, const Pipe& out, const Pipe& err) {
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(out.write_end, STDOUT_FILENO);
    ::dup2(err.write_end, STDERR_FILENO);
    ::alarm(120);
    std::vector<char*> argv{const_cast<char*>(BASTION_BINARY)};
    for (const std::string& arg : run.args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    ::execv(BASTION_BINARY, argv.data());
    ::_exit(127);
}

/// Appends what can be read; false at the end.
bool take(int file, std::string& text) {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(file, bytes.data(), bytes.size());
    if (n > 0) text.append(bytes.data(), static_cast<std::size_t>(n));
    return n > 0;
}

}  // namespace

std::string Outcome::last_error_line() const {
    const std::string text = err.ends_with('\n') ? err.substr(0, err.size() - 1) : err;
    return text.substr(text.rfind('\n') + 1);
}

Outcome run(const Run& run) {
    static const std::string cache = test::scratch_path("cache");
    ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    Pipe in, out, err;
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child == 0) become_program(run, in, out, err);
    in.close_read();
    out.close_write();
    err.close_write();
    if (run.close_stdout) out.close_read();
    // Inputs of these tests are far smaller than a pipe holds, so one write cannot block.
    (void)!::write(in.write_end, run.input.data(), run.input.size());
    in.close_write();

    Outcome outcome;
    bool signalled = false;
    std::array<pollfd, 2> files{{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}}};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        ::poll(files.data(), files.size(), -1);
        if (files[0].revents && !take(out.read_end, outcome.out)) files[0].fd = -1;
        if (files[1].revents && !take(err.read_end, outcome.err)) files[1].fd = -1;
        const int number = run.signal_when && !signalled ? run.signal_when(outcome.out) : 0;
        if (number != 0) {
            ::kill(child, number);
            signalled = true;
        }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

void expect_refused(const Outcome& outcome, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("bastion: error: ")) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    for (const std::string& part : parts) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

std::string write_file(const std::string& name, const std::string& text) {
    const std::string path = test::scratch_path(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
}

}  // namespace bastion::testing
