// Whole passes and plain decoding against libllama on the same file, in one process, taking turns.
//
//   bench_passes FILE.gguf [--threads N] [--contexts 64,4096] [--rows 1,8,16] [--runs 7] [--text FILE]
//
// What is equal is checked first: every row of a wide pass has the bits it has alone, and both engines mostly choose
// the same tokens. With --text the perplexity of both over the text's first tokens. Times are min / median / max.
#include <llama.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/models.h"

namespace {

using namespace bastion;

constexpr int kDecoded = 24;   ///< tokens a run of plain decoding
constexpr int kPrefill = 512;  ///< prompt tokens
constexpr int kChunk = 512;    ///< tokens of a text whose perplexity is taken together

[[noreturn]] void fail(const std::string& message) {
    std::fprintf(stderr, "bench_passes: error: %s\n", message.c_str());
    std::exit(1);
}

void must(const Status& status) {
    if (!status.ok()) fail(status.error().message);
}

Token argmax_of(const float* logits, int vocab) {
    return static_cast<Token>(std::max_element(logits, logits + vocab) - logits);
}

/// log p(token) under softmax(logits).
double logprob_of(const float* logits, int vocab, Token token) {
    const double maximum = *std::max_element(logits, logits + vocab);
    double sum = 0;
    for (int i = 0; i < vocab; ++i) sum += std::exp(logits[i] - maximum);
    return logits[token] - maximum - std::log(sum);
}

/// Either engine: a sequence of committed tokens, and rows behind it.
class Runner {
 public:
    virtual ~Runner() = default;
    /// Computes `tokens` as a chain at `position`; what the cache held from there on is lost.
    /// `every`: logits of all rows, else of the last.
    virtual void pass(const std::vector<Token>& tokens, int position, bool every) = 0;
    /// Of the last pass; numbered from 0 among the rows that have logits. Valid until the next call.
    virtual const float* logits(int row) = 0;
    virtual Token chosen(int row) = 0;
};

class Ours : public Runner {
 public:
    explicit Ours(Models& models) : m_(models), logits_(m_.config.vocab) {}

    void pass(const std::vector<Token>& tokens, int position, bool every) override {
        const std::size_t most = every ? tokens.size() : static_cast<std::size_t>(m_.chunk);
        for (std::size_t at = 0; at < tokens.size(); at += most) {
            const std::vector<Token> part(tokens.begin() + at, tokens.begin() + std::min(tokens.size(), at + most));
            run(part, position + static_cast<int>(at), every, at + most >= tokens.size());
        }
    }
    const float* logits(int row) override {
        m_.target->read_logits(row, logits_);
        return logits_.data();
    }
    Token chosen(int row) override { return m_.target->argmax(row); }

 private:
    void run(const std::vector<Token>& tokens, int position, bool every, bool last) {
        const int n = static_cast<int>(tokens.size());
        std::vector<std::int32_t> positions(n), parents(n);
        for (int i = 0; i < n; ++i) {
            positions[i] = position + i;
            parents[i] = i - 1;
        }
        const SequenceRows rows{0, position, tokens, positions, parents, {}};
        must(m_.target->pass({&rows, 1}, last ? Outputs::logits : Outputs::none, !every));
    }

    Models& m_;
    std::vector<float> logits_;
};

class Libllama : public Runner {
 public:
    Libllama(const std::string& path, int threads, int ctx) {
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_model_params model_params = llama_model_default_params();
        model_params.n_gpu_layers = 0;
        model_.reset(llama_model_load_from_file(path.c_str(), model_params));
        if (!model_) fail("libllama cannot load " + path);
        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<std::uint32_t>(ctx);
        params.n_threads = params.n_threads_batch = threads;
        context_.reset(llama_init_from_model(model_.get(), params));
        if (!context_) fail("libllama cannot create a context");
        vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    }

    void pass(const std::vector<Token>& tokens, int position, bool every) override {
        llama_memory_seq_rm(llama_get_memory(context_.get()), 0, position, -1);
        const int n = static_cast<int>(tokens.size());
        llama_batch batch = llama_batch_init(n, 0, 1);
        rows_.clear();
        for (int i = 0; i < n; ++i) {
            batch.token[i] = tokens[i];
            batch.pos[i] = position + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = every || i + 1 == n;
            if (batch.logits[i]) rows_.push_back(i);
        }
        batch.n_tokens = n;
        if (llama_decode(context_.get(), batch) != 0) fail("libllama failed to decode");
        llama_batch_free(batch);
        // Waits for the computation, as reading our outputs does.
        llama_synchronize(context_.get());
    }
    const float* logits(int row) override { return llama_get_logits_ith(context_.get(), rows_[row]); }
    Token chosen(int row) override { return argmax_of(logits(row), vocab_); }

 private:
    struct Free {
        void operator()(llama_model* m) const { llama_model_free(m); }
        void operator()(llama_context* c) const { llama_free(c); }
    };
    std::unique_ptr<llama_model, Free> model_;
    std::unique_ptr<llama_context, Free> context_;
    std::vector<int> rows_;
    int vocab_ = 0;
};

/// Times of one engine at one task, in milliseconds.
struct Times {
    std::vector<double> ms;

    double at(double share) {
        std::sort(ms.begin(), ms.end());
        return ms[static_cast<std::size_t>(share * static_cast<double>(ms.size() - 1))];
    }
    double best() { return at(0); }
};

struct Settings {
    std::string file, text;
    int threads = 0, runs = 7;
    std::vector<int> contexts{64, 4096}, rows{1, 8, 16};
};

class Comparison {
 public:
    explicit Comparison(const Settings& s) : s_(s) {
        EngineOptions options;
        options.target = s.file;
        options.threads = s.threads;
        options.ctx = *std::max_element(s.contexts.begin(), s.contexts.end()) + kPrefill + 2 * kDecoded;
        auto models = Models::load(options, {});
        if (!models.ok()) fail(models.error().message);
        models_ = std::move(models.value());
        ours_ = std::make_unique<Ours>(*models_);
        theirs_ = std::make_unique<Libllama>(s.file, models_->device->threads(), models_->ctx);
        std::printf("%s, %s kernels, %d threads\n", s.file.c_str(), models_->device->kernels_name(),
                    models_->device->threads());
    }

    void run() {
        for (const int context : s_.contexts) {
            fill(context);
            check(context);
            for (int r = 0; r < s_.runs; ++r) measure(context);
        }
        for (int r = 0; r < std::min(s_.runs, 5); ++r) {
            for (Runner* e : engines()) {
                time(e, "prefill of 512", [&] { e->pass(tokens(kPrefill, 3), 0, false); });
            }
        }
        report();
        if (!s_.text.empty()) perplexity();
    }

 private:
    std::vector<Runner*> engines() { return {ours_.get(), theirs_.get()}; }

    std::vector<Token> tokens(int n, int seed) const {
        std::vector<Token> out(n);
        for (int i = 0; i < n; ++i)
            out[i] = static_cast<Token>((i * 7919LL + seed * 104729LL + 17) % models_->config.vocab);
        return out;
    }

    void fill(int context) {
        for (Runner* e : engines()) {
            for (int at = 0; at < context; at += kPrefill) {
                e->pass(tokens(std::min(kPrefill, context - at), 5 + at), at, false);
            }
        }
    }

    void check(int context) {
        const int n = *std::max_element(s_.rows.begin(), s_.rows.end());
        const std::vector<Token> chain = tokens(n, 11);
        ours_->pass(chain, context, true);
        std::vector<std::vector<float>> wide;
        int agree = 0;
        theirs_->pass(chain, context, true);
        for (int i = 0; i < n; ++i) {
            const float* row = ours_->logits(i);
            wide.emplace_back(row, row + models_->config.vocab);
            agree += ours_->chosen(i) == theirs_->chosen(i);
        }
        for (int i = 0; i < n; ++i) {
            ours_->pass({chain[i]}, context + i, true);
            if (std::memcmp(ours_->logits(0), wide[i].data(), wide[i].size() * sizeof(float)) != 0) {
                fail("row " + std::to_string(i) + " of a pass differs from the row alone");
            }
        }
        std::printf(
            "context %d: rows of a pass have the bits they have alone; libllama chooses the same token in %d of %d\n",
            context, agree, n);
    }

    void time(Runner* engine, const std::string& what, const std::function<void()>& work) {
        // The other library's threads go on spinning for a while.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const auto start = std::chrono::steady_clock::now();
        work();
        const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        if (!times_.contains(what)) order_.push_back(what);
        times_[what][engine == ours_.get() ? 0 : 1].ms.push_back(ms);
    }

    void measure(int context) {
        const std::string at = " at context " + std::to_string(context);
        for (const int rows : s_.rows) {
            for (Runner* e : engines()) {
                const std::vector<Token> chain = tokens(rows, 13);
                time(e, std::to_string(rows) + " rows" + at, [&] {
                    e->pass(chain, context, true);
                    e->logits(rows - 1);
                });
            }
        }
        for (Runner* e : engines()) {
            time(e, std::to_string(kDecoded) + " tokens decoded" + at, [&] {
                Token next = 19;
                for (int i = 0; i < kDecoded; ++i) {
                    e->pass({next}, context + i, true);
                    next = e->chosen(0);
                }
            });
        }
    }

    void report() {
        std::printf("\n%-34s %26s %26s %10s\n", "ms, min / median / max", "bastion", "libllama", "l/b (min)");
        for (const std::string& what : order_) {
            auto& [ours, theirs] = times_[what];
            std::printf("%-34s %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %10.2f\n", what.c_str(), ours.at(0), ours.at(0.5),
                        ours.at(1), theirs.at(0), theirs.at(0.5), theirs.at(1), theirs.best() / ours.best());
        }
        for (const int context : s_.contexts) {
            const auto name = [&](int rows) {
                return std::to_string(rows) + " rows at context " + std::to_string(context);
            };
            auto& [one, their_one] = times_[name(s_.rows.front())];
            for (const int rows : s_.rows) {
                auto& [ours, theirs] = times_[name(rows)];
                std::printf("%-34s %8.2f (over its own %d row) %8.2f; over libllama's %d row %.2f\n",
                            name(rows).c_str(), ours.best() / one.best(), s_.rows.front(),
                            theirs.best() / their_one.best(), s_.rows.front(), ours.best() / their_one.best());
            }
        }
    }

    void perplexity() {
        std::ifstream file(s_.text, std::ios::binary);
        if (!file) fail("cannot read " + s_.text);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        std::vector<Token> all = models_->tokenizer->encode(text, false, false);
        all.resize(std::min<std::size_t>(all.size(), 16 * kChunk));
        double loss[2] = {};
        long count = 0;
        for (std::size_t at = 0; at + kChunk <= all.size(); at += kChunk) {
            const std::vector<Token> chunk(all.begin() + at, all.begin() + at + kChunk);
            for (int e = 0; e < 2; ++e) {
                engines()[e]->pass(chunk, 0, true);
                // The first half gives context.
                for (int i = kChunk / 2; i + 1 < kChunk; ++i) {
                    loss[e] -= logprob_of(engines()[e]->logits(i), models_->config.vocab, chunk[i + 1]);
                }
            }
            count += kChunk / 2 - 1;
        }
        if (count == 0) fail(s_.text + " is shorter than " + std::to_string(kChunk) + " tokens");
        const double ours = std::exp(loss[0] / static_cast<double>(count)),
                     theirs = std::exp(loss[1] / static_cast<double>(count));
        std::printf("perplexity over %ld tokens: bastion %.4f, libllama %.4f, ratio - 1 = %+.3f %%\n", count, ours,
                    theirs, 100 * (ours / theirs - 1));
    }

    Settings s_;
    std::unique_ptr<Models> models_;
    std::unique_ptr<Ours> ours_;
    std::unique_ptr<Libllama> theirs_;
    std::map<std::string, std::array<Times, 2>> times_;
    std::vector<std::string> order_;
};

std::vector<int> numbers(const std::string& list) {
    std::vector<int> out;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t comma = std::min(list.find(',', at), list.size());
        const int value = std::atoi(list.substr(at, comma - at).c_str());
        if (value < 1) fail("'" + list + "' is no list of positive numbers");
        out.push_back(value);
        at = comma + 1;
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    Settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string arg = argv[i];
        if (arg.rfind("--", 0) != 0) {
            s.file = arg;
            continue;
        }
        if (i + 1 == argc) fail(arg + " needs a value");
        const std::string value = argv[++i];
        if (arg == "--threads")
            s.threads = std::atoi(value.c_str());
        else if (arg == "--runs")
            s.runs = std::max(1, std::atoi(value.c_str()));
        else if (arg == "--contexts")
            s.contexts = numbers(value);
        else if (arg == "--rows")
            s.rows = numbers(value);
        else if (arg == "--text")
            s.text = value;
        else
            fail("unknown flag " + arg);
    }
    if (s.file.empty())
        fail("usage: bench_passes FILE.gguf [--threads N] [--contexts LIST] [--rows LIST] [--runs N] [--text FILE]");
    Comparison(s).run();
    return 0;
}
