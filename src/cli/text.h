// Text for people: formatted numbers, and foreign text made safe for a terminal.
#pragma once

#include <string>

namespace bastion::cli {

/// As printf; at most 511 characters.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// Text from files and flags on one line: valid UTF-8, control characters replaced by blanks.
std::string one_line(const std::string& text);

/// A duration: "1:02:03" or "2:03".
std::string clock_text(double seconds);

}  // namespace bastion::cli
