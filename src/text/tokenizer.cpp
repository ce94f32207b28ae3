#include "text/tokenizer.h"

#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>

#include "base/ggml_ptr.h"
#include "text/stream.h"
#include "text/vocabulary.h"

namespace bastion {
namespace {

/// Where the first error line of libllama goes while this thread loads a vocabulary.
thread_local std::string* error_sink = nullptr;

void keep_first_error(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR && error_sink != nullptr && error_sink->empty()) *error_sink = text;
}

class ErrorCapture {
 public:
    ErrorCapture() { error_sink = &text_; }
    ~ErrorCapture() { error_sink = nullptr; }
    ErrorCapture(const ErrorCapture&) = delete;
    ErrorCapture& operator=(const ErrorCapture&) = delete;

    /// What libllama said, without the chain of function names before it; one line.
    std::string reason() const {
        constexpr std::string_view kChain = "error loading model";
        std::string_view text = text_;
        if (const std::size_t at = text.rfind(kChain); at != std::string_view::npos) {
            text.remove_prefix(std::min(text.size(), text.find(": ", at)));
            text.remove_prefix(std::min<std::size_t>(text.size(), 2));
        }
        text = text.substr(0, text.find('\n'));
        return text.empty() ? "no reason given" : std::string(text);
    }

 private:
    std::string text_;
};

struct ModelDeleter {
    void operator()(llama_model* model) const { llama_model_free(model); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;

ModelPtr load_vocabulary_only(const std::string& path) {
    // The vocabulary stands in the first part of a split file; with this override the others are not opened.
    llama_model_kv_override overrides[2] = {};
    overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
    constexpr std::string_view kSplitCount = "split.count";
    std::copy(kSplitCount.begin(), kSplitCount.end(), overrides[0].key);
    overrides[0].val_i64 = 1;

    ggml_backend_dev_t no_devices[] = {nullptr};
    llama_model_params params = llama_model_default_params();
    params.devices = no_devices;
    params.load_mode = LLAMA_LOAD_MODE_MMAP;
    params.kv_overrides = overrides;
    params.vocab_only = true;
    return ModelPtr(llama_model_load_from_file(path.c_str(), params));
}

}  // namespace

void silence_libraries() {
    static std::once_flag once;
    std::call_once(once, [] { llama_log_set(keep_first_error, nullptr); });
}

struct Tokenizer::Impl {
    ModelPtr model;
    const llama_vocab* vocab = nullptr;
    Token bos = -1;
    Token eos = -1;
    bool adds_bos = false;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Tokenizer> Tokenizer::load(const std::string& path) try {
    silence_libraries();
    const ErrorCapture errors;
    const gguf_context_ptr header(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
    if (!header) return bad_input(path + ": not a readable GGUF file: " + errors.reason());
    BASTION_CHECK(check_vocabulary(header.get(), path));

    auto impl = std::make_shared<Impl>();
    impl->model = load_vocabulary_only(path);
    if (!impl->model) return bad_input(path + ": the vocabulary cannot be loaded: " + errors.reason());
    impl->vocab = llama_model_get_vocab(impl->model.get());
    // Where a byte-pair vocabulary names no BOS, libllama would answer with its default, id 11.
    const bool guessed =
        llama_vocab_type(impl->vocab) == LLAMA_VOCAB_TYPE_BPE && !has_key(header.get(), "tokenizer.ggml.bos_token_id");
    impl->bos = guessed ? -1 : llama_vocab_bos(impl->vocab);
    impl->eos = llama_vocab_eos(impl->vocab);
    impl->adds_bos = impl->bos >= 0 && llama_vocab_get_add_bos(impl->vocab);
    return Tokenizer(std::shared_ptr<const Impl>(std::move(impl)));
} catch (const std::bad_alloc&) {
    return runtime_error(path + ": not enough memory for the vocabulary");
} catch (const std::exception& e) {
    return bad_input(path + ": the vocabulary cannot be loaded: " + e.what());
}

int Tokenizer::size() const { return llama_vocab_n_tokens(impl_->vocab); }

std::vector<Token> Tokenizer::encode(std::string_view text, bool special, bool add_bos) const {
    // libllama throws on some invalid sequences, reads others as U+FFFD.
    constexpr std::size_t kLongest = std::numeric_limits<std::int32_t>::max();
    const std::string clean = sanitize_utf8(text.substr(0, kLongest));
    const auto length = static_cast<std::int32_t>(std::min(clean.size(), kLongest));

    // BOS is prepended here, not by libllama: it would do so twice for a template that writes BOS itself.
    const auto tokenize = [&](std::vector<Token>& out) {
        return llama_tokenize(impl_->vocab, clean.data(), length, out.data(), static_cast<std::int32_t>(out.size()),
                              false, special);
    };
    std::vector<Token> tokens(clean.size() / 3 + 16);
    std::int32_t count = tokenize(tokens);
    if (count < 0 && count != std::numeric_limits<std::int32_t>::min()) {
        tokens.resize(static_cast<std::size_t>(-count));
        count = tokenize(tokens);
    }
    tokens.resize(static_cast<std::size_t>(std::max(count, 0)));

    // A BOS text typed by a user is plain text, so only a parsed one counts.
    const bool has_bos = special && !tokens.empty() && tokens.front() == impl_->bos;
    if (add_bos && impl_->adds_bos && !has_bos) tokens.insert(tokens.begin(), impl_->bos);
    return tokens;
}

std::string Tokenizer::piece(Token token, bool special) const {
    if (token < 0 || token >= size()) return {};
    std::string bytes(32, '\0');
    const auto render = [&] {
        return llama_token_to_piece(impl_->vocab, token, bytes.data(), static_cast<std::int32_t>(bytes.size()), 0,
                                    special);
    };
    std::int32_t count = render();
    if (count < 0) {
        bytes.resize(static_cast<std::size_t>(-count));
        count = render();
    }
    bytes.resize(static_cast<std::size_t>(std::max(count, 0)));
    return bytes;
}

bool Tokenizer::is_end(Token token) const { return llama_vocab_is_eog(impl_->vocab, token); }

Token Tokenizer::bos() const { return impl_->bos; }
Token Tokenizer::eos() const { return impl_->eos; }

std::string Tokenizer::bos_text() const { return piece(impl_->bos, true); }
std::string Tokenizer::eos_text() const { return piece(impl_->eos, true); }

}  // namespace bastion
