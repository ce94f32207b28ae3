#include "cli/answers_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/files.h"

namespace bastion::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWhat = "answers";

std::string named(const std::string& path) { return std::string(kWhat) + " '" + path + "'"; }

bool is_token_list(const Json& value) {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), [](const Json& token) { return token.is_number_integer(); });
}

/// Whether a line of the file has all that `answer_line` writes.
bool is_answer(const Json& line) {
    if (!line.is_object()) return false;
    const auto has = [&line](const char* key, bool (*fits)(const Json&)) {
        const auto value = line.find(key);
        return value != line.end() && fits(*value);
    };
    const auto text = [](const Json& value) { return value.is_string(); };
    const auto number = [](const Json& value) { return value.is_number(); };
    return has("id", text) && has("source", text) && has("temperature", number) &&
           has("prompt_tokens", is_token_list) && has("tokens", is_token_list) && has("text", text) &&
           has("stop_reason", text);
}

/// Whether `piece` can be the beginning of a line of `answer_line`. Nothing else may be cut off a file: it would be
/// somebody's data.
bool is_cut_answer(std::string_view piece) {
    for (const std::string_view part : {R"({"id":")", R"(","source":")", R"(","temperature":)"}) {
        const std::size_t shown = std::min(part.size(), piece.size());
        if (piece.substr(0, shown) != part.substr(0, shown)) return false;
        piece.remove_prefix(shown);
        std::size_t quote = 0;  // that ends the field's text
        while (quote < piece.size() && piece[quote] != '"') quote += piece[quote] == '\\' ? 2 : 1;
        piece.remove_prefix(std::min(quote, piece.size()));
    }
    return true;
}

/// What is in a file of answers.
struct Existing {
    std::unordered_set<std::string> ids;
    std::uintmax_t bytes = 0;      ///< of whole lines
    bool newline_missing = false;  ///< the last of them only lacks its end
};

/// Line by line, because such files grow large.
Result<Existing> read_existing(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad_input(named(path) + " cannot be read: " + std::strerror(errno));
    Existing found;
    std::string line;
    for (long number = 1; std::getline(file, line); ++number) {
        const bool terminated = !file.eof();
        const Json json = Json::parse(line, nullptr, false);
        if (is_answer(json)) {
            found.ids.insert(json["id"].get<std::string>());
            found.newline_missing = !terminated;
        } else if (!terminated && is_cut_answer(line)) {
            break;
        } else {
            return bad_input(named(path) + " line " + std::to_string(number) +
                             " is no answer of this command, and the file is left as it is: name another --out");
        }
        found.bytes += line.size() + (terminated ? 1 : 0);
    }
    if (file.bad()) return bad_input(named(path) + " cannot be read completely");
    return found;
}

}  // namespace

std::string answer_line(const AnswerRecord& answer) {
    Json json;
    json["id"] = answer.id;
    json["source"] = answer.source;
    json["temperature"] = answer.temperature;
    json["prompt_tokens"] = answer.prompt_tokens;
    json["tokens"] = answer.tokens;
    json["text"] = answer.text;
    json["stop_reason"] = to_string(answer.stop_reason);
    return json.dump();
}

Result<AnswersFile> AnswersFile::open(const std::string& path) {
    AnswersFile answers(path);
    std::error_code ignored;
    if (!fs::exists(path, ignored) || fs::is_directory(path, ignored)) {
        BASTION_CHECK(check_writable(path, kWhat));
        return answers;
    }
    BASTION_CHECK(answers.open_stream("a"));
    if (fs::is_regular_file(path, ignored)) BASTION_CHECK(answers.resume());
    return answers;
}

Status AnswersFile::open_stream(const char* mode) {
    file_.reset(std::fopen(path_.c_str(), mode));
    if (!file_) return bad_input(named(path_) + " cannot be written: " + std::strerror(errno));
    // File systems without locks give another error, and then nothing is known of other writers.
    if (::flock(::fileno(file_.get()), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return bad_input(named(path_) + " is being written by another process");
    }
    return {};
}

Status AnswersFile::resume() {
    BASTION_ASSIGN(Existing found, read_existing(path_));
    ids_ = std::move(found.ids);
    const bool ended = !found.newline_missing || std::fputc('\n', file_.get()) != EOF;
    if (!ended || ::ftruncate(::fileno(file_.get()), static_cast<off_t>(found.bytes)) != 0 ||
        std::fflush(file_.get()) != 0) {
        return runtime_error(named(path_) + " cannot be written: " + std::strerror(errno));
    }
    return {};
}

Status AnswersFile::append(const AnswerRecord& answer) {
    // "x": a file that has appeared since `open` is somebody else's.
    if (!file_) BASTION_CHECK(open_stream("wx"));
    const std::string line = answer_line(answer) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
        return runtime_error(named(path_) + " could not be written: " + std::strerror(errno));
    }
    return {};
}

}  // namespace bastion::cli
