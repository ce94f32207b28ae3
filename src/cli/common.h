// What several commands share: their flags, opening the engine, turning a prompt into tokens, running an answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bastion/engine.h"
#include "bastion/options.h"
#include "bastion/status.h"
#include "cli/args.h"
#include "cli/progress.h"

namespace bastion::cli {

/// Exit codes of the program.
inline constexpr int kExitOk = 0, kExitRuntime = 1, kExitUsage = 2, kExitInterrupted = 130;

/// How the user's text becomes the model's prompt.
struct PromptOptions {
    bool raw = false;         ///< the text as it is, without the chat template
    std::string system = {};  ///< system message; empty: the template's default
    bool no_think = false;    ///< templates with a thinking switch: off
};

void declare_engine(Flags& flags, EngineOptions& options);
/// With `--budget` and `--beam`, which belong to several fields each.
void declare_method(Flags& flags, GenerateOptions& options);
void declare_sampling(Flags& flags, SamplingOptions& options);
void declare_prompt(Flags& flags, PromptOptions& options);

/// Combinations of the flags above that would silently have no effect are refused. `--beam` alone selects the method.
Status settle_method(const Flags& flags, GenerateOptions& options);
Status check_prompt_options(const Flags& flags, const PromptOptions& options);

/// Where measured profiles are kept: bastion under XDG_CACHE_HOME or ~/.cache; empty if there is no home directory.
std::string cache_directory();

/// The context of each of many conversations: enough for most answers, and small enough that they fit into memory
/// together.
inline constexpr int kBatchCtx = 1024;
/// kBatchCtx, or the model's own context where that is less. A file that is no model is the engine's to refuse.
int batch_ctx(const std::string& target);

/// Opens the models, with a sentence about `make setup` where no model is given and none is embedded. The engine may
/// report progress as long as it lives, so `progress` must outlive it.
Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options, ProgressLine& progress);

/// The conversation through the model's chat template, as tokens.
Result<std::vector<Token>> encode_chat(const Engine& engine, const std::vector<ChatMessage>& messages, bool thinking);

/// A raw prompt as tokens: texts of special tokens become their ids, the model's BOS comes first where it wants one.
/// An empty prompt is the BOS alone, and refused if the model has none.
Result<std::vector<Token>> encode_raw(const Engine& engine, const std::string& text);

/// How a conversation begins: the system message, if there is one, and what the user says.
std::vector<ChatMessage> opening(const PromptOptions& options, const std::string& text);

/// The conversation as tokens; with `raw` the text of its last message alone.
Result<std::vector<Token>> encode_messages(const Engine& engine, const PromptOptions& options,
                                           const std::vector<ChatMessage>& messages);

/// Runs the answer begun in `session` to its end, or until a signal interrupts it. `on_text` gets each chunk of text;
/// when it returns false the answer is interrupted too.
Status run_answer(Engine& engine, Session& session, ProgressLine& progress,
                  const std::function<bool(std::string_view)>& on_text);

}  // namespace bastion::cli
