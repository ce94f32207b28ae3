#include "cli/args.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace bastion::cli {

namespace {

template <class Integer>
bool parse_whole(std::string_view text, Integer& value) {
    Integer parsed{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc{} || end != text.data() + text.size()) return false;
    value = parsed;
    return true;
}

/// "4096", "0.5", "-1": as short as the number allows.
std::string number_text(double value) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.10g", value);
    return buffer;
}

/// " from 0", " from 0 to 1" or nothing.
std::string range_text(double low, double high) {
    std::string text;
    if (std::isfinite(low)) text += " from " + number_text(low);
    if (std::isfinite(high)) text += (text.empty() ? " up to " : " to ") + number_text(high);
    return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

/// Breaks `text` at spaces so that it fits between column `indent` and `width`; the first line starts at `indent`.
std::string wrap(const std::string& text, std::size_t indent, std::size_t width) {
    std::string out;
    std::size_t column = indent, start = 0;
    while (start < text.size()) {
        std::size_t end = text.find(' ', start);
        if (end == std::string::npos) end = text.size();
        const std::size_t length = end - start;
        if (column > indent) {
            if (column + 1 + length > width) {
                out += "\n" + std::string(indent, ' ');
                column = indent;
            } else {
                out += ' ';
                ++column;
            }
        }
        out.append(text, start, length);
        column += length;
        start = end + 1;
    }
    return out;
}

}  // namespace

bool parse_integer(std::string_view text, std::int64_t& value) { return parse_whole(text, value); }
bool parse_unsigned(std::string_view text, std::uint64_t& value) { return parse_whole(text, value); }

bool parse_number(std::string_view text, double& value) {
    // strtod reads more than a plain decimal number (spaces, "inf", "0x1p3"), so the characters are checked first.
    if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return false;
    const std::string copy(text);
    char* end = nullptr;
    const double parsed = std::strtod(copy.c_str(), &end);
    if (end != copy.c_str() + copy.size() || !std::isfinite(parsed)) return false;
    value = parsed;
    return true;
}

Status parse_budget(std::string_view where, const std::string& text, int& budget) {
    if (text == "auto") {
        budget = 0;
        return {};
    }
    std::int64_t parsed = 0;
    if (!parse_integer(text, parsed) || parsed < 1 || parsed > std::numeric_limits<int>::max()) {
        return bad_input(std::string(where) + ": expected 'auto' or a whole number of nodes from 1, got '" + text +
                         "'");
    }
    budget = static_cast<int>(parsed);
    return {};
}

Status parse_beam(std::string_view where, const std::string& text, int& width, int& depth) {
    const std::size_t x = text.find('x');
    std::int64_t w = 0, d = 0;
    constexpr std::int64_t kMost = 4096;
    if (x == std::string::npos || !parse_integer(std::string_view(text).substr(0, x), w) ||
        !parse_integer(std::string_view(text).substr(x + 1), d) || w < 1 || d < 1 || w > kMost || d > kMost) {
        return bad_input(std::string(where) + ": expected WIDTHxDEPTH with whole numbers from 1 to " +
                         std::to_string(kMost) + ", such as 4x15, got '" + text + "'");
    }
    width = static_cast<int>(w);
    depth = static_cast<int>(d);
    return {};
}

Status parse_counts(const std::string& flag, const std::string& text, int most, std::vector<int>& values) {
    constexpr std::size_t kLongestList = 16;
    values.clear();
    for (std::size_t start = 0; start <= text.size();) {
        const std::size_t end = std::min(text.find(',', start), text.size());
        std::int64_t value = 0;
        if (!parse_integer(std::string_view(text).substr(start, end - start), value) || value < 1 || value > most) {
            return bad_input("--" + flag + ": expected whole numbers from 1 to " + std::to_string(most) +
                             " separated by commas, got '" + text + "'");
        }
        values.push_back(static_cast<int>(value));
        start = end + 1;
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (values.size() <= kLongestList) return {};
    return bad_input("--" + flag + ": expected at most " + std::to_string(kLongestList) + " numbers, got " +
                     std::to_string(values.size()));
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance && distance < candidate.size()) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

Flags::Flags(std::string command, std::string usage, std::string summary)
    : command_(std::move(command)), usage_(std::move(usage)), summary_(std::move(summary)) {}

void Flags::section(std::string title) { section_ = std::move(title); }

void Flags::add(Flag flag) {
    flag.section = section_;
    flags_.push_back(std::move(flag));
}

void Flags::operator()(const char* name, std::string& field, const char* placeholder, const char* help) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .default_text = field,
         .set = [&field](const Flag& flag, const std::string& text) -> Status {
             // An unset variable in a script must not quietly mean the default.
             if (text.empty() && flag.placeholder.starts_with("FILE")) {
                 return bad_input("--" + flag.name + ": expected a file name, got an empty text");
             }
             field = text;
             return {};
         }});
}

void Flags::operator()(const char* name, int& field, const char* placeholder, const char* help) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .default_text = std::to_string(field),
         .low = std::numeric_limits<int>::min(),
         .high = std::numeric_limits<int>::max(),
         .set = [&field](const Flag& flag, const std::string& text) -> Status {
             std::int64_t value = 0;
             if (!parse_integer(text, value) || static_cast<double>(value) < flag.low ||
                 static_cast<double>(value) > flag.high) {
                 return bad_input("--" + flag.name + ": expected a whole number" + range_text(flag.low, flag.high) +
                                  ", got '" + text + "'");
             }
             field = static_cast<int>(value);
             return {};
         }});
}

void Flags::operator()(const char* name, std::uint64_t& field, const char* placeholder, const char* help) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .default_text = std::to_string(field),
         .set = [&field](const Flag& flag, const std::string& text) -> Status {
             if (!parse_unsigned(text, field)) {
                 return bad_input("--" + flag.name + ": expected a whole number from 0 to " +
                                  std::to_string(std::numeric_limits<std::uint64_t>::max()) + ", got '" + text + "'");
             }
             return {};
         }});
}

void Flags::operator()(const char* name, double& field, const char* placeholder, const char* help) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .default_text = number_text(field),
         .set = [&field](const Flag& flag, const std::string& text) -> Status {
             double value = 0;
             if (!parse_number(text, value) || value < flag.low || value > flag.high) {
                 return bad_input("--" + flag.name + ": expected a number" + range_text(flag.low, flag.high) +
                                  ", got '" + text + "'");
             }
             field = value;
             return {};
         }});
}

void Flags::operator()(const char* name, bool& field, const char*, const char* help) {
    add({.name = name, .help = help, .set = [&field](const Flag&, const std::string&) -> Status {
             field = true;
             return {};
         }});
}

void Flags::operator()(const char* name, std::vector<std::string>& field, const char* placeholder, const char* help) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .set = [&field](const Flag& flag, const std::string& text) -> Status {
             if (text.empty()) return bad_input("--" + flag.name + ": expected a text that is not empty");
             field.push_back(text);
             return {};
         }});
}

void Flags::custom(const char* name, const char* placeholder, const char* help, std::string default_text,
                   std::function<Status(const std::string&)> set) {
    add({.name = name,
         .placeholder = placeholder,
         .help = help,
         .default_text = std::move(default_text),
         .set = [set = std::move(set)](const Flag&, const std::string& text) { return set(text); }});
}

void Flags::limit(std::string_view name, double low, double high) {
    if (Flag* flag = find(name)) {
        flag->low = low;
        flag->high = std::min(flag->high, high);
    }
}

void Flags::remove(std::string_view name) {
    std::erase_if(flags_, [&](const Flag& flag) { return flag.name == name; });
}

void Flags::positional(std::vector<std::string>& field, std::size_t most, const char* placeholder, const char* help) {
    positional_ = &field;
    positional_most_ = most;
    positional_placeholder_ = placeholder;
    positional_help_ = help;
}

Flags::Flag* Flags::find(std::string_view name) {
    const auto it = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
    return it == flags_.end() ? nullptr : &*it;
}

const Flags::Flag* Flags::find(std::string_view name) const { return const_cast<Flags*>(this)->find(name); }

bool Flags::given(std::string_view name) const {
    const Flag* flag = find(name);
    return flag && flag->given;
}

Status Flags::unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const Flag& flag : flags_) names.push_back(flag.name);
    const std::string guess = nearest(name, names);
    return bad_input("unknown flag --" + name +
                     (guess.empty() ? " (see bastion " + command_ + " --help)" : ", did you mean --" + guess + "?"));
}

Status Flags::parse_flag(const Args& args, std::size_t& index) {
    const std::string& arg = args[index];
    const std::size_t equals = arg.find('=');
    const std::string name = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    Flag* flag = find(name);
    if (!flag) return unknown(name);
    std::string value;
    if (flag->placeholder.empty()) {
        if (equals != std::string::npos) return bad_input("--" + name + " takes no value");
    } else if (equals != std::string::npos) {
        value = arg.substr(equals + 1);
    } else {
        if (index + 1 >= args.size()) return bad_input("--" + name + " needs a value (" + flag->placeholder + ")");
        value = args[++index];
        // A forgotten value would otherwise swallow the next flag without a word.
        if (value.starts_with("--") && find(std::string_view(value).substr(2, value.find('=') - 2))) {
            return bad_input("--" + name + " needs a value (" + flag->placeholder + "); if the value is '" + value +
                             "' itself, write --" + name + "=" + value);
        }
    }
    BASTION_CHECK(flag->set(*flag, value));
    flag->given = true;
    return {};
}

Status Flags::parse(const Args& args) {
    bool flags_ended = false;
    for (std::size_t i = 0; i < args.size(); ++i) {
        const std::string& arg = args[i];
        if (!flags_ended && arg == "--") {
            flags_ended = true;
        } else if (!flags_ended && (arg == "--help" || arg == "-h")) {
            help_wanted_ = true;
            return {};
        } else if (!flags_ended && arg.starts_with("--")) {
            BASTION_CHECK(parse_flag(args, i));
        } else if (!flags_ended && arg.size() > 1 && arg[0] == '-') {
            return bad_input("unknown flag " + arg + " (flags start with two dashes, see bastion " + command_ +
                             " --help)");
        } else if (!positional_) {
            return bad_input("unexpected argument '" + arg + "' (bastion " + command_ +
                             " takes flags only; a text with spaces needs quotes)");
        } else if (positional_->size() == positional_most_) {
            return bad_input("unexpected argument '" + arg + "' (at most " + std::to_string(positional_most_) + " " +
                             positional_placeholder_ + ")");
        } else {
            positional_->push_back(arg);
        }
    }
    return {};
}

std::string Flags::help() const {
    constexpr std::size_t kIndent = 28, kWidth = 100;
    std::string out =
        "usage: bastion " + command_ + (usage_.empty() ? "" : " " + usage_) + "\n\n" + wrap(summary_, 0, kWidth) + "\n";
    const auto line = [&](const std::string& left, const std::string& right) {
        out += "  " + left;
        if (left.size() + 4 > kIndent) {
            out += "\n" + std::string(kIndent, ' ');
        } else {
            out += std::string(kIndent - 2 - left.size(), ' ');
        }
        out += wrap(right, kIndent, kWidth) + "\n";
    };
    if (positional_) {
        out += "\n";
        line(positional_placeholder_, positional_help_);
    }
    std::string current = "\n";  // no section has this title
    for (const Flag& flag : flags_) {
        if (flag.section != current) {
            current = flag.section;
            out += "\n" + (current.empty() ? "options" : current) + ":\n";
        }
        std::string text = flag.help;
        // Where the help already says what the default means, repeating it would only confuse.
        if (!flag.default_text.empty() && text.find("(default") == std::string::npos) {
            text += " (default: " + flag.default_text + ")";
        }
        line("--" + flag.name + (flag.placeholder.empty() ? "" : " " + flag.placeholder), text);
    }
    line("--help", "show this text");
    return out;
}

}  // namespace bastion::cli
