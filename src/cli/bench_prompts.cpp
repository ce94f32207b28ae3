#include "cli/bench_prompts.h"

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "cli/files.h"

namespace bastion::cli {

namespace {

using Json = nlohmann::json;

Result<std::vector<std::string>> read_turns(const Json& object, const std::string& where) {
    if (const auto turns = object.find("turns"); turns != object.end()) {
        if (!turns->is_array() || turns->empty())
            return bad_input(where + ": 'turns' must be an array of texts, not empty");
        std::vector<std::string> texts;
        for (const Json& turn : *turns) {
            if (!turn.is_string()) return bad_input(where + ": 'turns' must be an array of texts");
            texts.push_back(turn.get<std::string>());
        }
        return texts;
    }
    const auto prompt = object.find("prompt");
    if (prompt == object.end()) return bad_input(where + ": expected 'prompt' or 'turns'");
    if (!prompt->is_string()) return bad_input(where + ": 'prompt' must be a text");
    return std::vector<std::string>{prompt->get<std::string>()};
}

std::string read_id(const Json& object, int line) {
    for (const char* key : {"id", "task_id", "question_id"}) {
        const auto id = object.find(key);
        if (id == object.end()) continue;
        if (id->is_string()) return id->get<std::string>();
        if (id->is_number()) return id->dump();
    }
    return std::to_string(line);
}

Result<BenchPrompt> parse_line(std::string_view text, const std::string& name, int line) {
    const std::string where = "'" + name + "' line " + std::to_string(line);
    if (!is_utf8(text)) return bad_input(where + ": expected valid UTF-8");
    const Json object = Json::parse(text, nullptr, false);
    if (object.is_discarded()) return bad_input(where + ": expected a JSON object, this is not JSON");
    if (!object.is_object()) return bad_input(where + ": expected a JSON object with 'prompt' or 'turns'");
    BASTION_ASSIGN(std::vector<std::string> turns, read_turns(object, where));
    const auto source = object.find("source");
    const bool named = source != object.end() && source->is_string();
    return BenchPrompt{read_id(object, line), line, std::move(turns), named ? source->get<std::string>() : ""};
}

}  // namespace

Result<std::vector<BenchPrompt>> parse_prompts(const std::string& text, const std::string& name, int limit) {
    std::vector<BenchPrompt> prompts;
    std::string_view rest = text;
    if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // some editors mark UTF-8 so
    for (int line = 1; !rest.empty(); ++line) {
        const std::size_t newline = rest.find('\n');
        const std::string_view current = rest.substr(0, newline);
        rest = newline == std::string_view::npos ? std::string_view() : rest.substr(newline + 1);
        if (current.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        BASTION_ASSIGN(BenchPrompt prompt, parse_line(current, name, line));
        prompts.push_back(std::move(prompt));
        if (limit > 0 && static_cast<int>(prompts.size()) == limit) break;
    }
    if (prompts.empty()) return bad_input("'" + name + "' has no prompts, expected one JSON object a line");
    return prompts;
}

Status check_unique_ids(const std::vector<BenchPrompt>& prompts, const std::string& name) {
    std::unordered_map<std::string, int> line_of;
    for (const BenchPrompt& prompt : prompts) {
        const auto [earlier, is_new] = line_of.try_emplace(prompt.id, prompt.line);
        if (!is_new) {
            return bad_input("'" + name + "' has the id '" + prompt.id + "' on line " +
                             std::to_string(earlier->second) + " and on line " + std::to_string(prompt.line) +
                             ", expected every id once");
        }
    }
    return {};
}

Result<PromptSets> read_prompt_sets(const std::vector<std::string>& files, int limit) {
    PromptSets all;
    for (const std::string& file : files) {
        const std::string name = std::filesystem::path(file).stem().string();
        for (const PromptSet& other : all.sets) {
            if (other.name == name) return bad_input("--prompts: two files are called '" + name + "'");
        }
        BASTION_ASSIGN(const std::string text, read_text(file, "prompts"));
        BASTION_ASSIGN(std::vector<BenchPrompt> prompts, parse_prompts(text, file, limit));
        BASTION_CHECK(check_unique_ids(prompts, file));
        all.sets.push_back({name, all.prompts.size(), prompts.size()});
        std::move(prompts.begin(), prompts.end(), std::back_inserter(all.prompts));
    }
    return all;
}

}  // namespace bastion::cli
