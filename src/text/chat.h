// Chat templates, rendered by the Jinja engine of the pinned llama.cpp source.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bastion/engine.h"
#include "bastion/status.h"

namespace bastion {

/// A compiled chat template. Immutable; rendering is thread-safe: the engine's syntax tree is const while it runs and
/// every rendering has a context of its own. Copies share the tree.
class ChatTemplate {
 public:
    /// `source`: tokenizer.chat_template. Fails with one sentence where the template does not parse.
    static Result<ChatTemplate> compile(const std::string& source, const std::string& bos_text,
                                        const std::string& eos_text);

    /// The prompt for `messages`. `add_generation_prompt` opens the assistant's turn. `thinking` sets the template's
    /// `enable_thinking` (Qwen3). `now` is what the template's `strftime_now` shows, in local time; default: the clock.
    /// A template that raises (bad role order, ...) is a bad-input error with its words.
    Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                               bool thinking = true, std::optional<std::time_t> now = std::nullopt) const;

 private:
    struct Impl;
    explicit ChatTemplate(std::shared_ptr<const Impl> impl);
    std::shared_ptr<const Impl> impl_;
};

}  // namespace bastion
