// The file that `bastion answers` writes: one JSON object for each finished answer, only ever appended to, so that a
// run that was cut short goes on where it ended.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "bastion/engine.h"
#include "bastion/status.h"
#include "cli/bench_prompts.h"

namespace bastion::cli {

/// One answer with everything that it was made from.
struct AnswerRecord {
    std::string id;      ///< of the prompt
    std::string source;  ///< of the prompt; empty if it names none
    double temperature = 0;
    std::vector<Token> prompt_tokens;  ///< of the rendered prompt
    std::vector<Token> tokens;         ///< emitted; the end-of-generation token comes last if the model ended by itself
    std::string text;
    StopReason stop_reason = StopReason::none;
};

/// `{"id","source","temperature","prompt_tokens":[..],"tokens":[..],"text","stop_reason"}` without a newline.
std::string answer_line(const AnswerRecord& answer);

/// The answers of earlier runs and the place for new ones.
class AnswersFile {
 public:
    /// Reads what is in the file already; a last line that a crash cut short is removed. A file that holds anything
    /// else than answers is refused and left alone, and so is one that another process is writing. A new file is
    /// created with the first answer, and devices and pipes are only written to.
    static Result<AnswersFile> open(const std::string& path);

    /// Whether the file held an answer of this id when it was opened.
    bool has(const std::string& id) const { return ids_.contains(id); }

    /// Writes one line and flushes it.
    Status append(const AnswerRecord& answer);

 private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    explicit AnswersFile(std::string path) : path_(std::move(path)) {}
    Status open_stream(const char* mode);
    Status resume();

    std::string path_;
    std::unordered_set<std::string> ids_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace bastion::cli
