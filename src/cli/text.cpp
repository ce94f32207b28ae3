#include "cli/text.h"

#include <cstdarg>
#include <cstdio>

#include "text/stream.h"

namespace bastion::cli {

std::string format(const char* pattern, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
    va_end(arguments);
    return buffer;
}

std::string clock_text(double seconds) {
    const long s = static_cast<long>(seconds);
    return s >= 3600 ? format("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60) : format("%ld:%02ld", s / 60, s % 60);
}

std::string one_line(const std::string& text) {
    std::string result = sanitize_utf8(text);
    for (char& c : result) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    }
    return result;
}

}  // namespace bastion::cli
