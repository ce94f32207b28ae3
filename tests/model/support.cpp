#include "support.h"

#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

// Part of libllama's ABI that its public header leaves out.
LLAMA_API void llama_set_embeddings_layer_inp(llama_context* ctx, uint32_t layer, bool value);
LLAMA_API float* llama_get_embeddings_layer_inp(llama_context* ctx, uint32_t layer);

namespace bastion::test {
namespace {

const std::filesystem::path kModels = BASTION_TEST_MODELS_DIR;
const std::filesystem::path kSource = BASTION_SOURCE_DIR;

void quiet(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

}  // namespace

std::string model_path(const std::string& name) { return (kModels / (name + ".gguf")).string(); }
std::string reference_path(const std::string& drafter) { return (kModels / (drafter + ".reference")).string(); }
std::string smollm_path() { return (kSource / "deps/models/SmolLM2-135M-Instruct.Q4_1.gguf").string(); }
std::string smollm_drafter_path() { return (kSource / "models/smollm2-135m-dflash.gguf").string(); }

std::string scratch_path(const std::string& name) {
    const auto folder = kModels / "scratch" / std::to_string(getpid());
    std::filesystem::create_directories(folder);
    // Children made by fork leave through _exit and do not come here.
    static const bool registered = [] {
        std::atexit([] {
            std::error_code ignored;
            std::filesystem::remove_all(kModels / "scratch" / std::to_string(getpid()), ignored);
        });
        return true;
    }();
    (void)registered;
    return (folder / name).string();
}

std::string name_of(Kernels kernels) {
    switch (kernels) {
        case Kernels::packed:
            return "packed";
        case Kernels::packed_avx2:
            return "packed_avx2";
        case Kernels::packed_avx512:
            return "packed_avx512";
        case Kernels::generic:
            return "generic";
        case Kernels::library:
            return "library";
        default:
            return "automatic";
    }
}

bool available(Kernels kernels) { return Device::open("cpu", 1, kernels).ok(); }

void must(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.error().message);
}

Rows Rows::chain(int committed, std::vector<Token> tokens, int slot) {
    Rows rows{slot, committed, std::move(tokens), {}, {}};
    for (int i = 0; i < rows.size(); ++i) rows.parents.push_back(i - 1);
    return rows;
}

int Rows::depth(int row) const { return parents[row] < 0 ? 0 : depth(parents[row]) + 1; }

std::vector<std::int32_t> Rows::path(int row) const {
    std::vector<std::int32_t> rows;
    for (int i = row; i >= 0; i = parents[i]) rows.push_back(i);
    std::reverse(rows.begin(), rows.end());
    return rows;
}

TargetRig::TargetRig(const std::string& path, TargetOptions options)
    : file_(must(GgufFile::open(path))),
      config_(must(read_target_config(file_))),
      device_(must(Device::open("cpu", options.threads, options.kernels))),
      weights_(must(Weights::load(file_, *device_))),
      kv_(must(KvPool::create(*device_, config_.layers, config_.kv_width(), options.slots, options.cells,
                              options.kv_type))) {
    if (!options.taps.empty()) {
        const int width = static_cast<int>(options.taps.size()) * config_.hidden;
        features_.emplace(must(FeaturePool::create(*device_, width, options.feature_rows)));
    }
    target_ =
        std::make_unique<Target>(config_, weights_, *device_, kv_, options.taps, features_ ? &*features_ : nullptr);
}

std::vector<Logits> TargetRig::pass(const std::vector<Rows>& sequences, bool last_only) {
    std::vector<std::vector<std::int32_t>> positions;
    std::vector<SequenceRows> views;
    std::size_t outputs = 0;
    for (const Rows& rows : sequences) {
        auto& own = positions.emplace_back();
        for (int i = 0; i < rows.size(); ++i) own.push_back(rows.committed + rows.depth(i));
        outputs += last_only ? 1 : rows.size();
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        const Rows& rows = sequences[i];
        views.push_back({rows.slot, rows.committed, rows.tokens, positions[i], rows.parents, rows.feature_rows});
    }
    must(target_->pass(views, Outputs::logits, last_only));
    std::vector<Logits> logits(outputs, Logits(config_.vocab));
    for (std::size_t row = 0; row < outputs; ++row) {
        target_->read_logits(static_cast<int>(row), logits[row]);
        EXPECT_EQ(target_->argmax(static_cast<int>(row)), test::argmax(logits[row])) << "argmax of row " << row;
    }
    return logits;
}

Logits TargetRig::prefill(const std::vector<Token>& tokens, int slot, int committed) {
    return pass(std::vector<Rows>{Rows::chain(committed, tokens, slot)}, true).front();
}

std::vector<Logits> TargetRig::one_by_one(const Rows& rows) {
    std::vector<std::vector<int>> children(rows.size() + 1);  // the last entry: children of the committed prefix
    for (int i = 0; i < rows.size(); ++i) children[rows.parents[i] < 0 ? rows.size() : rows.parents[i]].push_back(i);
    std::vector<Logits> logits(rows.size());
    // Depth first, the cells below committed + depth always hold the ancestors: a sibling just overwrites its cell.
    const std::function<void(int, int)> visit = [&](int parent, int depth) {
        for (const int row : children[parent]) {
            logits[row] = prefill({rows.tokens[row]}, rows.slot, rows.committed + depth);
            visit(row, depth + 1);
        }
    };
    visit(rows.size(), 0);
    return logits;
}

void TargetRig::keep(int slot, int committed, const std::vector<std::int32_t>& rows) {
    must(kv_.keep_rows(*device_, slot, committed, rows));
}

std::vector<float> TargetRig::features(const std::vector<std::int32_t>& rows) const {
    const ggml_tensor* tensor = features_->tensor();
    const std::size_t width = tensor->ne[0];
    std::vector<float> values(rows.size() * width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        ggml_backend_tensor_get(tensor, &values[i * width], rows[i] * tensor->nb[1], width * sizeof(float));
    }
    return values;
}

DrafterRig::DrafterRig(TargetRig& target, const std::string& path, int slots, int cells, FeaturePool* features,
                       int feature_rows)
    : file_(must(GgufFile::open(path))),
      config_(must(read_drafter_config(file_))),
      weights_(must(Weights::load(file_, target.device()))),
      kv_(must(KvPool::create(target.device(), config_.layers, config_.kv_width(), slots, cells, GGML_TYPE_F16))),
      own_features_(features ? std::nullopt
                             : std::optional(must(FeaturePool::create(target.device(), width(), feature_rows)))),
      features_(features ? features : &*own_features_),
      drafter_(config_, weights_, target.config(), target.weights(), target.device(), kv_, *features_) {}

void DrafterRig::set_features(const std::vector<float>& values) {
    ggml_backend_tensor_set(features_->tensor(), values.data(), 0, values.size() * sizeof(float));
}

void DrafterRig::inject(int slot, int first, int count, int first_row) {
    std::vector<std::int32_t> rows(count), positions(count);
    for (int i = 0; i < count; ++i) {
        rows[i] = first_row + i;
        positions[i] = first + i;
    }
    inject({Injection{slot, rows, positions}});
}

void DrafterRig::inject(const std::vector<Injection>& injections) { must(drafter_.inject(injections)); }

std::vector<Lattice> DrafterRig::draft(const std::vector<DraftRequest>& requests, int topk) {
    return must(drafter_.draft(requests, topk));
}

Llama::Llama(const std::string& path, bool flash_attention) {
    llama_log_set(quiet, nullptr);
    llama_model_params model = llama_model_default_params();
    model.use_extra_bufts = false;
    model_.reset(llama_model_load_from_file(path.c_str(), model));
    if (!model_) throw std::runtime_error("libllama does not load " + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F16;
    ctx_.reset(llama_init_from_model(model_.get(), params));
    if (!ctx_) throw std::runtime_error("libllama makes no context for " + path);
}

std::vector<Token> Llama::tokenize(const std::string& text) const {
    const llama_vocab* vocab = llama_model_get_vocab(model_.get());
    std::vector<Token> tokens(text.size() + 8);
    const int count = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                                     static_cast<int>(tokens.size()), false, true);
    tokens.resize(std::max(count, 0));
    return tokens;
}

std::vector<Logits> Llama::decode(const std::vector<Token>& tokens) {
    const int count = static_cast<int>(tokens.size());
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int i = 0; i < count; ++i) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position_ + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    const int failed = llama_decode(ctx_.get(), batch);
    llama_batch_free(batch);
    if (failed != 0) throw std::runtime_error("libllama failed to decode");
    position_ += count;
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    std::vector<Logits> logits;
    for (int i = 0; i < count; ++i) {
        const float* row = llama_get_logits_ith(ctx_.get(), i);
        logits.emplace_back(row, row + vocab);
    }
    return logits;
}

void Llama::reset() {
    llama_memory_clear(llama_get_memory(ctx_.get()), true);
    position_ = 0;
}

void Llama::tap(int layer) { llama_set_embeddings_layer_inp(ctx_.get(), layer, true); }

std::vector<float> Llama::tapped(int layer, int rows) const {
    const float* values = llama_get_embeddings_layer_inp(ctx_.get(), layer);
    return std::vector<float>(values, values + static_cast<std::size_t>(rows) * llama_model_n_embd(model_.get()));
}

namespace {

double deviation(const Logits& x) {
    double sum = 0, squares = 0;
    for (const float value : x) {
        sum += value;
        squares += static_cast<double>(value) * value;
    }
    const double mean = sum / x.size();
    return std::sqrt(squares / x.size() - mean * mean);
}

}  // namespace

double distance(const Logits& a, const Logits& b) {
    if (a.size() != b.size()) throw std::runtime_error("rows of different length");
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
        if (!(difference <= largest)) largest = difference;  // takes a NaN over and keeps it
    }
    return largest / deviation(b);
}

Token argmax(const Logits& logits) {
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void expect_close(const Logits& a, const Logits& b, double tolerance, const std::string& what) {
    EXPECT_LE(distance(a, b), tolerance) << what;
    Logits sorted = b;
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    const double gap = (sorted[0] - sorted[1]) / deviation(b);
    if (gap > 2 * tolerance) {
        EXPECT_EQ(argmax(a), argmax(b)) << what;
    }
}

void expect_same_bits(const std::vector<Logits>& a, const std::vector<Logits>& b, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t row = 0; row < a.size(); ++row) {
        ASSERT_EQ(a[row].size(), b[row].size()) << what;
        ASSERT_TRUE(std::isfinite(deviation(a[row])) && deviation(a[row]) > 0) << what << ": row " << row << " is void";
        ASSERT_EQ(std::memcmp(a[row].data(), b[row].data(), a[row].size() * sizeof(float)), 0)
            << what << ": row " << row << " of " << a.size() << " differs by " << distance(a[row], b[row])
            << " standard deviations";
    }
}

std::vector<Token> random_tokens(int count, int vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random() % static_cast<std::uint32_t>(vocab));
    return tokens;
}

}  // namespace bastion::test
