// Runs the built program as a user would and keeps everything it did.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace bastion::testing {

struct Outcome {
    int code = -1;  ///< exit code; 128 + number if a signal ended it
    std::string out, err;

    /// The last line of stderr, without its newline.
    std::string last_error_line() const;
};

struct Run {
    std::vector<std::string> args;
    std::string input = {};  ///< its stdin
    /// Looked at whenever more of stdout has been read; a number other than 0 is sent to the program as a signal, once.
    std::function<int(const std::string& out)> signal_when = {};
    bool close_stdout = false;  ///< nobody reads its stdout
};

/// Runs the program of this build with the cache of a folder of this process. Ends it after two minutes.
Outcome run(const Run& run);

/// Expects bad usage: exit code 2, nothing on stdout, one line on stderr that contains all `parts`.
void expect_refused(const Outcome& outcome, const std::vector<std::string>& parts);

/// A file of that content among the scratch files of this process; its path.
std::string write_file(const std::string& name, const std::string& text);

}  // namespace bastion::testing
