// The public interface: an engine holds the models, a session holds one conversation. No ggml types.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bastion/options.h"
#include "bastion/status.h"
#include "bastion/token.h"

namespace bastion {

struct ChatMessage {
    std::string role;  ///< "system", "user" or "assistant"
    std::string content;
};

/// Told how far loading or prefilling is: a stage ("load", "prefill", "calibrate") and a fraction in [0, 1].
using Progress = std::function<void(std::string_view stage, double fraction)>;

/// What an engine runs on; constant after opening.
struct EngineInfo {
    std::string target_path, target_name, drafter_path, drafter_name;  ///< drafter empty: none loaded
    std::string device;                                                ///< e.g. "cpu"
    std::string device_description;
    std::string kernels;  ///< "packed-avx512", "packed-avx2", "generic" or "library"
    int threads = 0;
    int ctx = 0;
    int vocab = 0;
    int block_size = 0;  ///< of the drafter; 0 without one
};

enum class StopReason { none, eos, length, stop, interrupted };
const char* to_string(StopReason reason);

/// Counters of one answer. Times are wall-clock milliseconds.
struct Stats {
    Method method = Method::ar;
    int budget = 0;  ///< 0: auto
    ControllerKind controller = ControllerKind::fixed_fit;
    int prompt_tokens = 0;
    int reused_tokens = 0;  ///< of the prompt, taken from the session's cache
    int tokens = 0;         ///< emitted: no end-of-generation token, nothing after a stop
    StopReason stop_reason = StopReason::none;
    Token end_token = -1;  ///< the end-of-generation token that ended the answer (StopReason::eos), else -1
    double prefill_ms = 0, decode_ms = 0;
    int cycles = 0;
    int cycle_tokens = 0;    ///< tokens emitted by cycles (all but the one drawn by the prefill)
    int copied_tokens = 0;   ///< of those, tokens that a copy of earlier text had proposed
    long nodes = 0;          ///< verified rows, over all cycles
    int off_cycles = 0;      ///< cycles without a draft
    std::string off_reason;  ///< why, empty if none
    double draft_ms = 0, build_ms = 0, verify_ms = 0, commit_ms = 0;

    double tau() const { return cycles ? static_cast<double>(cycle_tokens) / cycles : 0.0; }
    double mean_nodes() const { return cycles ? static_cast<double>(nodes) / cycles : 0.0; }
    double tokens_per_s() const { return decode_ms > 0 ? 1e3 * cycle_tokens / decode_ms : 0.0; }
};

/// One cycle, for `--trace`.
struct CycleTrace {
    struct TraceNode {
        Token token;
        int parent, depth;
        double logprob;
        bool accepted;
    };
    int cycle = 0;
    int position = 0;         ///< of the root
    int budget = 0;           ///< nodes verified
    double predicted_ms = 0;  ///< verification, by the latency model; 0 if not asked
    double draft_ms = 0, verify_ms = 0;
    std::vector<TraceNode> nodes;
    std::vector<Token> emitted;
};

class Engine;

/// One conversation: its tokens, its KV cache slot and the answer in progress. Created by an engine, used by one
/// thread at a time, must not outlive the engine.
class Session {
 public:
    virtual ~Session() = default;

    /// Starts an answer to `prompt` (token ids, non-empty, shorter than the context). What the session already holds
    /// of it is kept; the rest is prefilled by the following steps.
    virtual Status begin(std::vector<Token> prompt, const GenerateOptions& options) = 0;

    virtual bool done() const = 0;  ///< no answer in progress
    virtual bool prefilling() const = 0;
    virtual double prefill_fraction() const = 0;

    /// Ends the answer in progress with what has been emitted.
    virtual void interrupt() = 0;

    /// Text that became safe to show since the last call (whole UTF-8 characters, no part of a stop text).
    virtual std::string take_text() = 0;

    virtual const std::vector<Token>& tokens() const = 0;  ///< prompt and emitted tokens
    virtual const std::vector<Token>& answer() const = 0;  ///< emitted tokens
    virtual const Stats& stats() const = 0;

    /// Called after every cycle while set.
    virtual void set_trace(std::function<void(const CycleTrace&)> trace) = 0;
};

/// Models, device and caches. Weights are immutable and shared by all sessions.
class Engine {
 public:
    /// Loads and checks everything; on success nothing about the files can fail later.
    static Result<std::unique_ptr<Engine>> open(const EngineOptions& options, const Progress& progress = {});
    virtual ~Engine() = default;

    virtual const EngineInfo& info() const = 0;

    /// The model's own chat template applied to `messages`, ready to be encoded.
    virtual Result<std::string> render_chat(const std::vector<ChatMessage>& messages, bool thinking = true) const = 0;
    virtual bool has_chat_template() const = 0;

    /// `text` as token ids; `special`: special-token texts become their ids (use for rendered chats).
    virtual std::vector<Token> encode(std::string_view text, bool special) const = 0;
    virtual std::string piece(Token token) const = 0;

    /// A new empty session; an error if all slots are taken.
    virtual Result<std::unique_ptr<Session>> open_session() = 0;

    /// One step for all given sessions together: a prefill chunk for those still reading their prompt, one
    /// draft-build-verify-commit cycle for the others. Sessions that are done are skipped. After an error the answers
    /// of the sessions it concerned have ended (StopReason::interrupted) with what had been emitted.
    virtual Status step(std::span<Session* const> sessions) = 0;

    /// Checks options against the loaded models (budget, top-K, ... in range). Without a drafter chain
    /// and beam decode plainly, tree proposes copies of the text alone, and the statistics say so.
    virtual Status check(const GenerateOptions& options) const = 0;

    /// Measures the latency profile anew and uses it from now on. Returns its JSON. `brief`: a small grid, for the
    /// first run on a machine.
    virtual Result<std::string> calibrate(bool brief, const Progress& progress) = 0;

    /// The profile that `budget` auto goes by, as JSON; empty if none has been loaded or measured yet.
    virtual std::string profile() const = 0;

    /// Where the profile of this device and pair is stored; empty if nowhere (no cache folder, or a context too small).
    virtual std::string profile_path() const = 0;
};

/// Path of the embedded target / drafter: beside the executable's source tree or installed; empty if not found.
std::string embedded_target_path();
std::string embedded_drafter_path();

}  // namespace bastion
