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

}  // namespace bastion::cli
