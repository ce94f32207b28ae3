// Reading stdin line by line in a way that a signal can end.
#pragma once

#include <string>

namespace bastion::cli {

/// Lines of a file descriptor. Not `std::getline`, whose retry after a signal would hide Ctrl-C at the prompt.
class LineReader {
 public:
    enum class Got { line, end, interrupted };

    explicit LineReader(int file) : file_(file) {}

    /// The next line without its newline (and without the carriage return before it). A last line without a newline
    /// counts. `interrupted`: a signal came while waiting.
    Got next(std::string& line);

 private:
    int file_;
    bool ended_ = false;
    std::string buffer_;
};

}  // namespace bastion::cli
