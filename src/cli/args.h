// Command-line flags: declared once, then parsed, checked and explained from that one declaration.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bastion/status.h"
#include "cli/words.h"

namespace bastion::cli {

using Args = std::vector<std::string>;

/// Whole text as a number; nothing but digits (and a sign) may stand in it. False also on overflow.
bool parse_integer(std::string_view text, std::int64_t& value);
bool parse_unsigned(std::string_view text, std::uint64_t& value);
/// Finite decimal numbers only: no NaN, infinity, hexadecimal or surrounding space.
bool parse_number(std::string_view text, double& value);

/// `--budget`: "auto" gives 0, otherwise a whole number from 1.
Status parse_budget(std::string_view where, const std::string& text, int& budget);
/// `WxD`, both whole numbers from 1.
Status parse_beam(std::string_view where, const std::string& text, int& width, int& depth);

/// Whole numbers from 1 to `most` separated by commas, 16 at most; `values` gets them sorted, each once.
Status parse_counts(const std::string& flag, const std::string& text, int most, std::vector<int>& values);

/// The candidate closest to `word` by edit distance, or nothing if none is close enough to be a slip of the keyboard.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// The flags of one command. Fields are bound by reference and keep their value as the default, so they must outlive
/// the object. A flag given twice takes the last value, a list collects all.
class Flags {
 public:
    /// `usage`: what follows "bastion COMMAND" in the help, e.g. "--prompt TEXT [options]".
    Flags(std::string command, std::string usage, std::string summary);

    /// Starts a group in the help.
    void section(std::string title);

    /// Binds a field. This is the visitor that the `visit` functions of bastion/options.h expect.
    void operator()(const char* name, std::string& field, const char* placeholder, const char* help);
    void operator()(const char* name, int& field, const char* placeholder, const char* help);
    void operator()(const char* name, std::uint64_t& field, const char* placeholder, const char* help);
    void operator()(const char* name, double& field, const char* placeholder, const char* help);
    void operator()(const char* name, bool& field, const char* placeholder, const char* help);
    void operator()(const char* name, std::vector<std::string>& field, const char* placeholder, const char* help);

    template <class E>
    requires requires { Words<E>::table; }
    void operator()(const char* name, E& field, const char* placeholder, const char* help) {
        add({.name = name,
             .placeholder = placeholder,
             .help = help,
             .default_text = word(field),
             .set = [&field](const Flag& flag, const std::string& text) -> Status {
                 for (const auto& [candidate, value] : Words<E>::table) {
                     if (text == candidate) {
                         field = value;
                         return {};
                     }
                 }
                 return bad_input("--" + flag.name + ": expected " + word_list<E>() + ", got '" + text + "'");
             }});
    }

    /// A flag with its own way of reading the value; `default_text` empty: the help shows none.
    void custom(const char* name, const char* placeholder, const char* help, std::string default_text,
                std::function<Status(const std::string&)> set);

    /// Limits an integer or number flag declared before to [low, high].
    void limit(std::string_view name, double low, double high);

    /// Takes back flags that an options struct declares but this command has no use for.
    void remove(std::string_view name);

    /// Accepts up to `most` arguments without a flag.
    void positional(std::vector<std::string>& field, std::size_t most, const char* placeholder, const char* help);

    /// Reads `args` into the bound fields. After `--help` the rest is not looked at.
    Status parse(const Args& args);

    bool given(std::string_view name) const;
    bool help_wanted() const { return help_wanted_; }
    std::string help() const;

 private:
    struct Flag {
        std::string name = {};
        std::string placeholder = {};  ///< empty: the flag takes no value
        std::string help = {};
        std::string default_text = {};
        std::string section = {};
        double low = -std::numeric_limits<double>::infinity();
        double high = std::numeric_limits<double>::infinity();
        bool given = false;
        std::function<Status(const Flag&, const std::string&)> set = {};
    };

    void add(Flag flag);
    Flag* find(std::string_view name);
    const Flag* find(std::string_view name) const;
    Status parse_flag(const Args& args, std::size_t& index);
    Status unknown(const std::string& name) const;

    std::string command_, usage_, summary_;
    std::string section_;
    std::deque<Flag> flags_;
    std::vector<std::string>* positional_ = nullptr;
    std::size_t positional_most_ = 0;
    std::string positional_placeholder_, positional_help_;
    bool help_wanted_ = false;
};

}  // namespace bastion::cli
