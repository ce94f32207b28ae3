// The prompts of a benchmark: one JSON object a line.
#pragma once

#include <string>
#include <vector>

#include "bastion/status.h"

namespace bastion::cli {

struct BenchPrompt {
    std::string id;                  ///< `id`, `task_id` or `question_id`, else the line number
    int line = 0;                    ///< in the file, from 1
    std::vector<std::string> turns;  ///< what the user says, at least one; answers come in between
    std::string source = {};         ///< `source` where it is a text: the data set the prompt is from
};

/// Reads `text`, the content of the file `name`: objects with `turns` (array of texts) or else `prompt` (text); other
/// fields are the data set's own. Blank lines are skipped. `limit` > 0: only the first so many. An error names file and
/// line; no prompt at all is an error too.
Result<std::vector<BenchPrompt>> parse_prompts(const std::string& text, const std::string& name, int limit);

/// That no id occurs twice; an error names it with both lines of the file `name`.
Status check_unique_ids(const std::vector<BenchPrompt>& prompts, const std::string& name);

/// The prompts of one file among all.
struct PromptSet {
    std::string name;  ///< the file's, without folder and extension
    std::size_t first = 0, count = 0;

    bool has(std::size_t prompt) const { return prompt >= first && prompt < first + count; }
};

struct PromptSets {
    std::vector<PromptSet> sets;
    std::vector<BenchPrompt> prompts;  ///< set after set
};

/// Reads the files, at most `limit` prompts of each if `limit` > 0. Besides bad files, ids that occur twice in a file
/// and two files of one name are refused.
Result<PromptSets> read_prompt_sets(const std::vector<std::string>& files, int limit);

}  // namespace bastion::cli
