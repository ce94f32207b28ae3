#include "cli/lines.h"

#include <unistd.h>

#include <cerrno>

#include "cli/interrupt.h"

namespace bastion::cli {

LineReader::Got LineReader::next(std::string& line) {
    while (true) {
        const std::size_t newline = buffer_.find('\n');
        if (newline != std::string::npos || (ended_ && !buffer_.empty())) {
            line = buffer_.substr(0, newline);
            buffer_.erase(0, newline == std::string::npos ? newline : newline + 1);
            if (!line.empty() && line.back() == '\r') line.pop_back();
            return Got::line;
        }
        if (ended_) return Got::end;
        if (interrupt::requested()) return Got::interrupted;
        char bytes[4096];
        const ssize_t n = ::read(file_, bytes, sizeof bytes);
        if (n > 0) {
            buffer_.append(bytes, static_cast<std::size_t>(n));
        } else if (n == 0 || errno != EINTR) {
            ended_ = true;
        }
    }
}

}  // namespace bastion::cli
