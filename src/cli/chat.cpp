// bastion chat: a conversation on stdin and stdout.
#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/lines.h"
#include "cli/stats_json.h"

namespace bastion::cli {

namespace {

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

/// One conversation and the session that holds its KV cache. The whole conversation is rendered anew for every
/// answer; the session keeps the prefix it already knows.
class Conversation {
 public:
    Conversation(Engine& engine, Session& session, const GenerateOptions& options, const PromptOptions& prompt,
                 StatsFormat stats, ProgressLine& progress)
        : engine_(engine), session_(session), options_(options), prompt_(prompt), stats_(stats), progress_(progress) {
        reset();
    }

    void reset() {
        messages_.clear();
        if (!prompt_.system.empty()) messages_.push_back({"system", prompt_.system});
    }

    /// Answers `text` on stdout. False where stdout is closed.
    Result<bool> answer(const std::string& text) {
        messages_.push_back({"user", text});
        if (const Status begun = begin(); !begun.ok()) {
            if (begun.error().kind == ErrorKind::runtime) return begun.error();
            messages_.pop_back();
            say("bastion: " + begun.error().message + "; this message is left out, /reset starts a new conversation");
            return true;
        }
        std::string reply;
        Written written = Written::ok;
        BASTION_CHECK(run_answer(engine_, session_, progress_, [&](std::string_view chunk) {
            reply += chunk;
            written = write_stdout(chunk);
            return written == Written::ok;
        }));
        if (written == Written::ok) written = write_stdout("\n");
        if (written == Written::failed) return stdout_error();
        if (reply.empty() && session_.stats().stop_reason == StopReason::interrupted) {
            messages_.pop_back();  // nothing was said to go on from
        } else {
            messages_.push_back({"assistant", reply});
        }
        answered_ = true;
        show_stats(stats_);
        return written == Written::ok;
    }

    void show_stats(StatsFormat format) const {
        if (format == StatsFormat::none) return;
        if (!answered_) return say("bastion: no answer yet");
        const std::string text = format == StatsFormat::json ? stats_json(session_.stats(), engine_.info()) + "\n"
                                                             : stats_text(session_.stats(), engine_.info());
        std::fputs(text.c_str(), stderr);
    }

 private:
    Status begin() {
        BASTION_ASSIGN(std::vector<Token> tokens, encode_chat(engine_, messages_, !prompt_.no_think));
        const int length = static_cast<int>(tokens.size());
        if (length >= engine_.info().ctx) {
            return bad_input("the conversation has " + std::to_string(length) + " tokens and the context holds " +
                             std::to_string(engine_.info().ctx));
        }
        return session_.begin(std::move(tokens), options_);
    }

    Engine& engine_;
    Session& session_;
    const GenerateOptions& options_;
    const PromptOptions& prompt_;
    const StatsFormat stats_;
    ProgressLine& progress_;
    std::vector<ChatMessage> messages_;
    bool answered_ = false;
};

/// Reads one message; lines that end in a backslash go on.
LineReader::Got read_message(LineReader& lines, bool prompting, std::string& message) {
    message.clear();
    std::string line;
    const char* prompt = "> ";
    while (true) {
        if (prompting) std::fputs(prompt, stderr);
        const LineReader::Got got = lines.next(line);
        if (got == LineReader::Got::interrupted) return got;
        if (got == LineReader::Got::end) return message.empty() ? got : LineReader::Got::line;
        if (line.empty() || line.back() != '\\') {
            message += line;
            return LineReader::Got::line;
        }
        message += line.substr(0, line.size() - 1) + "\n";
        prompt = ". ";
    }
}

/// The first word of a message if it is a command ("/exit", with or without blanks and words around it), else nothing.
std::string command_of(const std::string& message) {
    const std::size_t begin = message.find_first_not_of(" \t");
    if (begin == std::string::npos || message[begin] != '/') return "";
    return message.substr(begin, message.find_first_of(" \t", begin) - begin);
}

Result<int> converse(Conversation& conversation) {
    const bool prompting = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
    if (prompting) say("A line is a message, a trailing backslash continues it. /reset, /stats, /exit.");
    LineReader lines(STDIN_FILENO);
    std::string message;
    while (true) {
        const LineReader::Got got = read_message(lines, prompting, message);
        if (got != LineReader::Got::line && prompting) say("");
        if (got == LineReader::Got::interrupted) return kExitInterrupted;
        if (got == LineReader::Got::end) return kExitOk;
        const std::string command = command_of(message);
        if (command == "/exit") return kExitOk;
        if (message.empty()) continue;
        if (command == "/reset") {
            conversation.reset();
        } else if (command == "/stats") {
            conversation.show_stats(StatsFormat::text);
        } else if (!command.empty() && message.find(' ') == std::string::npos) {
            say("bastion: unknown command " + command + " (there are /reset, /stats and /exit)");
        } else if (!is_utf8(message)) {
            say("bastion: this message is not valid UTF-8 and is left out");
        } else {
            BASTION_ASSIGN(const bool open, conversation.answer(message));
            if (!open) return kExitRuntime;
            if (interrupt::termination_requested()) return kExitInterrupted;
            interrupt::clear();  // Ctrl-C has ended that answer; the conversation goes on
        }
    }
}

}  // namespace

Result<int> chat_command(const Args& args) {
    EngineOptions engine_options;
    GenerateOptions options;
    PromptOptions prompt;
    StatsFormat stats = StatsFormat::none;
    Flags flags("chat", "[options]",
                "Talks with the model: messages come from stdin, a line each, answers go to stdout.");
    declare_prompt(flags, prompt);
    flags.remove("raw");
    flags("stats", stats, "FORMAT", "after every answer, on stderr: text, json or none");
    declare_method(flags, options);
    declare_sampling(flags, options.sampling);
    declare_engine(flags, engine_options);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    BASTION_CHECK(settle_method(flags, options));
    BASTION_CHECK(check_prompt_options(flags, prompt));

    ProgressLine progress;
    BASTION_ASSIGN(const auto engine, open_engine(engine_options, progress));
    BASTION_CHECK(engine->check(options));
    if (!engine->has_chat_template()) {
        return bad_input("model '" + engine->info().target_path + "' has no chat template, chat needs one");
    }
    BASTION_ASSIGN(const auto session, engine->open_session());
    Conversation conversation(*engine, *session, options, prompt, stats, progress);
    return converse(conversation);
}

}  // namespace bastion::cli
