#include "cli/bench_llama.h"

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "cli/interrupt.h"
#include "text/stream.h"
#include "text/tokenizer.h"
#include "tree/sample.h"

namespace bastion::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct FreeModel {
    void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
    void operator()(llama_context* context) const { llama_free(context); }
};

bool same_name(const std::string& a, const std::string& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// ggml's device of that name, or nullptr for the CPU and unknown names.
ggml_backend_dev_t find_device(const std::string& name) {
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        const ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU &&
            same_name(ggml_backend_dev_name(device), name)) {
            return device;
        }
    }
    return nullptr;
}

class LlamaAnswerer : public Answerer {
 public:
    LlamaAnswerer(const Engine& engine, GenerateOptions options) : engine_(engine), options_(std::move(options)) {}

    Status load() {
        const EngineInfo& info = engine_.info();
        silence_libraries();
        ggml_backend_dev_t devices[] = {find_device(info.device), nullptr};
        llama_model_params model_params = llama_model_default_params();
        model_params.devices = devices;
        model_params.n_gpu_layers = devices[0] ? -1 : 0;
        model_.reset(llama_model_load_from_file(info.target_path.c_str(), model_params));
        if (!model_) return runtime_error("libllama cannot load '" + info.target_path + "'");

        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<std::uint32_t>(info.ctx);
        params.n_threads = params.n_threads_batch = info.threads;
        params.offload_kqv = params.op_offload = devices[0] != nullptr;
        context_.reset(llama_init_from_model(model_.get(), params));
        if (!context_)
            return runtime_error("libllama cannot create a context of " + std::to_string(info.ctx) + " tokens");
        vocab_ = llama_model_get_vocab(model_.get());
        return {};
    }

    Status restart() override {
        llama_memory_clear(llama_get_memory(context_.get()), true);
        cached_.clear();
        return {};
    }

    void set_max_tokens(int max_tokens) override { options_.max_tokens = max_tokens; }

    Result<BenchRun> answer(const std::vector<Token>& prompt) override {
        BASTION_CHECK(prefill(prompt));
        TextStream stream(options_.stop);
        BenchRun run;
        std::string text;
        const auto start = Clock::now();
        while (true) {
            // The same stop rules in the same order as ours: end token, stop text, length, context.
            const Token token = draw();
            if (!options_.ignore_eos && llama_vocab_is_eog(vocab_, token)) break;
            ++run.tokens;
            const bool stopped = stream.add(engine_.piece(token));
            text += stream.take();
            if (stopped || run.tokens == options_.max_tokens ||
                static_cast<int>(cached_.size()) + 1 >= engine_.info().ctx) {
                break;
            }
            if (interrupt::requested()) {
                run.interrupted = true;
                break;
            }
            BASTION_CHECK(decode({token}));
            ++run.cycles;
        }
        run.decode_s = std::chrono::duration<double>(Clock::now() - start).count();
        stream.finish();
        run.texts = {text + stream.take()};
        run.nodes = run.cycles;
        run.cycle_tokens = std::max(0, run.tokens - 1);
        return run;
    }

 private:
    /// Computes what the cache does not hold yet, at least the last token.
    Status prefill(const std::vector<Token>& prompt) {
        std::size_t common = 0;
        while (common + 1 < prompt.size() && common < cached_.size() && cached_[common] == prompt[common]) ++common;
        llama_memory_seq_rm(llama_get_memory(context_.get()), 0, static_cast<llama_pos>(common), -1);
        cached_.resize(common);
        const std::size_t batch = llama_n_batch(context_.get());
        for (std::size_t i = common; i < prompt.size(); i += batch) {
            const auto end = prompt.begin() + static_cast<std::ptrdiff_t>(std::min(prompt.size(), i + batch));
            BASTION_CHECK(decode({prompt.begin() + static_cast<std::ptrdiff_t>(i), end}));
        }
        return {};
    }

    Status decode(std::vector<Token> tokens) {
        const auto count = static_cast<std::int32_t>(tokens.size());
        const int code = llama_decode(context_.get(), llama_batch_get_one(tokens.data(), count));
        if (code != 0) return runtime_error("libllama failed to decode (code " + std::to_string(code) + ")");
        cached_.insert(cached_.end(), tokens.begin(), tokens.end());
        return {};
    }

    Token draw() const {
        const float* logits = llama_get_logits_ith(context_.get(), -1);
        return argmax({logits, static_cast<std::size_t>(llama_vocab_n_tokens(vocab_))});
    }

    const Engine& engine_;
    GenerateOptions options_;
    std::unique_ptr<llama_model, FreeModel> model_;
    std::unique_ptr<llama_context, FreeContext> context_;
    const llama_vocab* vocab_ = nullptr;
    std::vector<Token> cached_;  ///< tokens whose keys and values the context holds
};

}  // namespace

Status check_llama_options(const GenerateOptions& options) {
    if (!is_plain_argmax(options.sampling) || options.sampling.temperature > 0) {
        return bad_input("--methods llama.cpp decodes greedily: it needs --temperature 0 and no penalties");
    }
    return {};
}

Result<std::unique_ptr<Answerer>> make_llama_answerer(const Engine& engine, GenerateOptions options) {
    auto answerer = std::make_unique<LlamaAnswerer>(engine, std::move(options));
    BASTION_CHECK(answerer->load());
    return std::unique_ptr<Answerer>(std::move(answerer));
}

}  // namespace bastion::cli
