#include "cli/common.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "cli/files.h"
#include "cli/interrupt.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace bastion::cli {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// `ID=VALUE`, VALUE a number or -inf.
Status parse_logit_bias(const std::string& text, SamplingOptions& options) {
    const std::size_t equals = text.find('=');
    std::int64_t id = 0;
    double value = 0;
    bool ok = equals != std::string::npos && parse_integer(std::string_view(text).substr(0, equals), id) && id >= 0 &&
              id <= std::numeric_limits<std::int32_t>::max();
    if (ok) {
        const std::string_view bias = std::string_view(text).substr(equals + 1);
        if (bias == "-inf") {
            value = -std::numeric_limits<double>::infinity();
        } else {
            ok = parse_number(bias, value) && std::fabs(value) <= std::numeric_limits<float>::max();
        }
    }
    if (!ok) {
        return bad_input("--logit-bias: expected ID=VALUE with a token id and a number or -inf, got '" + text + "'");
    }
    options.logit_bias.emplace_back(static_cast<std::int32_t>(id), static_cast<float>(value));
    return {};
}

}  // namespace

void declare_engine(Flags& flags, EngineOptions& options) {
    flags.section("models and device");
    visit(options, flags);
    flags.limit("threads", 0, 1024);
    flags.limit("ctx", 0, kNoLimit);
}

void declare_method(Flags& flags, GenerateOptions& options) {
    flags.section("decoding");
    visit(options, flags);
    flags.limit("topk", 1, 1024);
    flags.limit("max-tokens", 1, kNoLimit);
    flags.custom("budget", "auto|N", "nodes a tree, root included; auto: decided every cycle from the latency profile",
                 "auto",
                 [&options](const std::string& text) { return parse_budget("--budget", text, options.budget); });
    flags.custom("beam", "WxD", "method beam: hypotheses a depth x depths, cut to the drafter's block",
                 std::to_string(options.beam_width) + "x" + std::to_string(options.beam_depth),
                 [&options](const std::string& text) {
                     return parse_beam("--beam", text, options.beam_width, options.beam_depth);
                 });
}

void declare_sampling(Flags& flags, SamplingOptions& options) {
    flags.section("sampling");
    visit(options, flags);
    flags.limit("temperature", 0, kNoLimit);
    flags.limit("top-k", 0, kNoLimit);
    flags.limit("top-p", 0, 1);
    flags.limit("min-p", 0, 1);
    // A penalty divides logits; at 0 it would not be a number any more.
    flags.limit("repeat-penalty", 1e-6, kNoLimit);
    flags.limit("penalty-window", -1, kNoLimit);
    flags.custom("logit-bias", "ID=VALUE", "add VALUE to the logit of token ID, -inf bans it (repeatable)", "",
                 [&options](const std::string& text) { return parse_logit_bias(text, options); });
}

void declare_prompt(Flags& flags, PromptOptions& options) {
    flags.section("prompt");
    flags("raw", options.raw, "", "no chat template: the prompt as it is, texts of special tokens included");
    flags("system", options.system, "TEXT", "system message");
    flags("no-think", options.no_think, "", "switch thinking off in templates that have such a switch");
}

Status settle_method(const Flags& flags, GenerateOptions& options) {
    if (flags.given("beam")) {
        if (!flags.given("method")) options.method = Method::beam;
        if (options.method != Method::beam) {
            return bad_input("--beam belongs to --method beam, got --method " + word(options.method));
        }
    }
    if (flags.given("budget") && options.method != Method::tree) {
        return bad_input("--budget belongs to --method tree, got --method " + word(options.method));
    }
    if (flags.given("controller") && (options.method != Method::tree || options.budget > 0)) {
        return bad_input("--controller belongs to --method tree with --budget auto");
    }
    return {};
}

Status check_prompt_options(const Flags& flags, const PromptOptions& options) {
    if (!is_utf8(options.system)) return bad_input("--system: expected valid UTF-8");
    if (options.raw && (flags.given("system") || options.no_think)) {
        return bad_input(std::string(flags.given("system") ? "--system" : "--no-think") +
                         " needs the chat template that --raw leaves out");
    }
    return {};
}

std::string cache_directory() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache && *cache) return std::string(cache) + "/bastion";
    const char* home = std::getenv("HOME");
    return home && *home ? std::string(home) + "/.cache/bastion" : std::string();
}

int batch_ctx(const std::string& target) {
    const auto file = GgufFile::open(target);
    if (!file.ok()) return kBatchCtx;
    const auto config = read_target_config(*file);
    return config.ok() ? std::min(kBatchCtx, config->train_ctx) : kBatchCtx;
}

Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options, ProgressLine& progress) {
    if (options.target.empty() && embedded_target_path().empty()) {
        return bad_input("no embedded model found, run `make setup` to fetch it or pass --target FILE.gguf");
    }
    EngineOptions complete = options;
    if (complete.cache_dir.empty()) complete.cache_dir = cache_directory();
    auto engine = Engine::open(complete, progress.callback());
    progress.clear();
    return engine;
}

Result<std::vector<Token>> encode_chat(const Engine& engine, const std::vector<ChatMessage>& messages, bool thinking) {
    if (!engine.has_chat_template()) {
        return bad_input("model '" + engine.info().target_path +
                         "' has no chat template, pass --raw to use the prompt as it is");
    }
    BASTION_ASSIGN(const std::string text, engine.render_chat(messages, thinking));
    return engine.encode(text, true);
}

Result<std::vector<Token>> encode_raw(const Engine& engine, const std::string& text) {
    std::vector<Token> tokens = text.empty() ? std::vector<Token>{} : engine.encode(text, true);
    // What plain text starts with is what the model wants in front: its BOS or nothing.
    const std::vector<Token> prefix = engine.encode("", false);
    if (!prefix.empty() && (tokens.empty() || tokens.front() != prefix.front())) {
        tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
    }
    if (tokens.empty()) {
        BASTION_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(engine.info().target_path));
        if (tokenizer.bos() < 0) {
            return bad_input("the prompt is empty and the model has no beginning-of-text token to start from");
        }
        tokens.push_back(tokenizer.bos());
    }
    return tokens;
}

std::vector<ChatMessage> opening(const PromptOptions& options, const std::string& text) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", text});
    return messages;
}

Result<std::vector<Token>> encode_messages(const Engine& engine, const PromptOptions& options,
                                           const std::vector<ChatMessage>& messages) {
    if (options.raw) return encode_raw(engine, messages.back().content);
    return encode_chat(engine, messages, !options.no_think);
}

Status run_answer(Engine& engine, Session& session, ProgressLine& progress,
                  const std::function<bool(std::string_view)>& on_text) {
    Session* const one[] = {&session};
    bool wanted = true;
    while (!session.done()) {
        if (interrupt::requested() || !wanted) {
            session.interrupt();
            break;
        }
        if (session.prefilling()) progress.show("prefill", session.prefill_fraction());
        BASTION_CHECK(engine.step(one));
        if (session.prefilling()) continue;
        progress.clear();
        const std::string text = session.take_text();
        if (!text.empty()) wanted = on_text(text);
    }
    progress.clear();
    const std::string rest = session.take_text();
    if (!rest.empty() && wanted) on_text(rest);
    return {};
}

}  // namespace bastion::cli
