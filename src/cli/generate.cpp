// bastion generate: one prompt, one answer.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/stats_json.h"

namespace bastion::cli {

namespace {

struct GenerateFlags {
    EngineOptions engine;
    GenerateOptions generate;
    PromptOptions prompt;
    std::string text, file, trace;
    StatsFormat stats = StatsFormat::text;
};

void declare(Flags& flags, GenerateFlags& o) {
    flags.section("input and output");
    flags("prompt", o.text, "TEXT", "what to answer");
    flags("prompt-file", o.file, "FILE", "read the prompt from a file, - for stdin");
    flags("stats", o.stats, "FORMAT", "text, json (one line, the last on stderr) or none");
    flags("trace", o.trace, "FILE.jsonl", "write one JSON object a cycle");
    declare_prompt(flags, o.prompt);
    declare_method(flags, o.generate);
    declare_sampling(flags, o.generate.sampling);
    declare_engine(flags, o.engine);
}

/// The prompt's text from whichever flag gave it, checked to be UTF-8.
Result<std::string> read_prompt(const Flags& flags, const GenerateFlags& o) {
    if (flags.given("prompt") && flags.given("prompt-file")) {
        return bad_input("generate takes --prompt TEXT or --prompt-file FILE, not both");
    }
    if (!flags.given("prompt") && !flags.given("prompt-file")) {
        return bad_input("generate needs one of --prompt TEXT and --prompt-file FILE");
    }
    if (flags.given("prompt")) {
        if (!is_utf8(o.text)) return bad_input("--prompt: expected valid UTF-8");
        return o.text;
    }
    BASTION_ASSIGN(std::string text, read_text(o.file, "prompt file"));
    if (!is_utf8(text)) return bad_input("prompt file '" + o.file + "': expected valid UTF-8");
    return text;
}

/// A trace file that collects cycles; an error shows when it is closed.
class TraceFile {
 public:
    Status open(const std::string& path) {
        BASTION_CHECK(check_writable(path, "trace file"));
        path_ = path;
        file_.reset(std::fopen(path.c_str(), "w"));
        if (!file_) return bad_input("trace file '" + path + "' cannot be written: " + std::strerror(errno));
        return {};
    }

    void attach(Session& session, const Engine& engine) {
        if (!file_) return;
        session.set_trace([this, &engine](const CycleTrace& cycle) {
            const std::string line = trace_json(cycle, engine) + "\n";
            std::fwrite(line.data(), 1, line.size(), file_.get());
        });
    }

    Status close() {
        if (!file_) return {};
        const bool failed = std::ferror(file_.get()) != 0;
        if (std::fclose(file_.release()) != 0 || failed) {
            return runtime_error("trace file '" + path_ + "' could not be written completely");
        }
        return {};
    }

 private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

void print_stats(StatsFormat format, const Stats& stats, const EngineInfo& info) {
    if (format == StatsFormat::none) return;
    const std::string text = format == StatsFormat::json ? stats_json(stats, info) + "\n" : stats_text(stats, info);
    std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Streams the answer to stdout and prints the statistics; the exit code says how it ended.
Result<int> answer(const GenerateFlags& o, Engine& engine, std::vector<Token> tokens, ProgressLine& progress) {
    TraceFile trace;
    if (!o.trace.empty()) BASTION_CHECK(trace.open(o.trace));
    BASTION_ASSIGN(const auto session, engine.open_session());
    trace.attach(*session, engine);
    BASTION_CHECK(session->begin(std::move(tokens), o.generate));
    Written written = Written::ok;
    BASTION_CHECK(run_answer(engine, *session, progress, [&](std::string_view text) {
        written = write_stdout(text);
        return written == Written::ok;
    }));
    if (written == Written::ok && isatty(STDOUT_FILENO) == 1) written = write_stdout("\n");
    BASTION_CHECK(trace.close());
    if (written == Written::failed) return stdout_error();
    if (written == Written::closed) return kExitRuntime;
    print_stats(o.stats, session->stats(), engine.info());
    return session->stats().stop_reason == StopReason::interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace

Result<int> generate_command(const Args& args) {
    GenerateFlags o;
    Flags flags("generate", "--prompt TEXT [options]",
                "Answers one prompt: the text goes to stdout, all else to stderr.");
    declare(flags, o);
    BASTION_CHECK(flags.parse(args));
    if (flags.help_wanted()) return print_result(flags.help());
    BASTION_CHECK(settle_method(flags, o.generate));
    BASTION_CHECK(check_prompt_options(flags, o.prompt));
    if (flags.given("trace")) BASTION_CHECK(check_writable(o.trace, "trace file"));
    BASTION_ASSIGN(const std::string text, read_prompt(flags, o));

    ProgressLine progress;
    BASTION_ASSIGN(const auto engine, open_engine(o.engine, progress));
    BASTION_CHECK(engine->check(o.generate));
    BASTION_ASSIGN(std::vector<Token> tokens, encode_messages(*engine, o.prompt, opening(o.prompt, text)));
    return answer(o, *engine, std::move(tokens), progress);
}

}  // namespace bastion::cli
