// What the tests of the model layer share: a target or drafter with everything it needs, libllama as the reference,
// and GGUF files with one thing changed.
#pragma once

#include <ggml-cpp.h>
#include <llama-cpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/drafter.h"
#include "model/target.h"

namespace bastion::test {

/// "<build>/test-models/<name>.gguf", written by tests/models/make_models.py.
std::string model_path(const std::string& name);
std::string reference_path(const std::string& drafter);
/// The embedded pair of the repository.
std::string smollm_path();
std::string smollm_drafter_path();
/// A file name of this process alone, in a folder that exists.
std::string scratch_path(const std::string& name);

/// Name of a choice of kernels for test names, and whether this machine has it.
std::string name_of(Kernels kernels);
bool available(Kernels kernels);

/// The value, or an exception that carries the error: in a test it ends the test with the sentence.
template <class T>
T must(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.error().message);
    return std::move(result).value();
}
void must(const Status& status);

using Logits = std::vector<float>;  ///< of one row, [vocab]

/// The rows of one sequence in a pass, with storage of their own.
struct Rows {
    int slot = 0;
    int committed = 0;
    std::vector<Token> tokens;
    std::vector<std::int32_t> parents;
    std::vector<std::int32_t> feature_rows;

    static Rows chain(int committed, std::vector<Token> tokens, int slot = 0);
    int size() const { return static_cast<int>(tokens.size()); }
    int depth(int row) const;
    /// Rows from the first ancestor to `row` itself.
    std::vector<std::int32_t> path(int row) const;
};

struct TargetOptions {
    Kernels kernels = Kernels::generic;
    int threads = 1;  ///< one: ggml spins at barriers, which stalls on a busy machine
    int slots = 1;
    int cells = 128;
    ggml_type kv_type = GGML_TYPE_F16;
    std::vector<int> taps = {};
    int feature_rows = 0;
};

/// A target on the CPU with its caches.
class TargetRig {
 public:
    explicit TargetRig(const std::string& path, TargetOptions options = {});

    /// Logits of every row, sequences in order.
    std::vector<Logits> pass(const std::vector<Rows>& sequences, bool last_only = false);
    std::vector<Logits> pass(const Rows& rows) { return pass(std::vector<Rows>{rows}); }
    /// Runs `tokens` as a chain and returns the logits of the last one.
    Logits prefill(const std::vector<Token>& tokens, int slot = 0, int committed = 0);
    /// Logits of each row by running its ancestors and it as a chain, one token a pass. Leaves scratch cells behind.
    std::vector<Logits> one_by_one(const Rows& rows);

    void keep(int slot, int committed, const std::vector<std::int32_t>& rows);
    /// Features [rows][width] of FeaturePool rows.
    std::vector<float> features(const std::vector<std::int32_t>& rows) const;

    const ModelConfig& config() const { return config_; }
    const Weights& weights() const { return weights_; }
    const Device& device() const { return *device_; }
    FeaturePool& pool() { return *features_; }
    Target& target() { return *target_; }

 private:
    GgufFile file_;
    ModelConfig config_;
    std::unique_ptr<Device> device_;
    Weights weights_;
    KvPool kv_;
    std::optional<FeaturePool> features_;
    std::unique_ptr<Target> target_;
};

/// A drafter on the device of a target, whose weights it may borrow.
class DrafterRig {
 public:
    /// `features` nullptr: a pool of its own with `feature_rows` rows, filled by `set_features`.
    DrafterRig(TargetRig& target, const std::string& path, int slots, int cells, FeaturePool* features,
               int feature_rows = 0);

    /// Writes `values` [rows][width] to the pool's rows 0, 1, ...
    void set_features(const std::vector<float>& values);
    /// Injects pool rows first_row, first_row + 1, ... as positions first, first + 1, ...
    void inject(int slot, int first, int count, int first_row);
    void inject(const std::vector<Injection>& injections);
    std::vector<Lattice> draft(const std::vector<DraftRequest>& requests, int topk);

    const ModelConfig& config() const { return config_; }
    int width() const { return static_cast<int>(config_.target_layers.size()) * config_.hidden; }

 private:
    GgufFile file_;
    ModelConfig config_;
    Weights weights_;
    KvPool kv_;
    std::optional<FeaturePool> own_features_;
    FeaturePool* features_;
    Drafter drafter_;
};

/// libllama decoding the same file in this process: f16 cache, weights not repacked.
class Llama {
 public:
    explicit Llama(const std::string& path, bool flash_attention = true);

    std::vector<Token> tokenize(const std::string& text) const;
    /// Decodes `tokens` after what it holds already; logits of every row.
    std::vector<Logits> decode(const std::vector<Token>& tokens);
    void reset();

    /// Asks for the input of `layer` (below the layer count) in later `decode` calls, and reads it: [rows][hidden].
    void tap(int layer);
    std::vector<float> tapped(int layer, int rows) const;

 private:
    llama_model_ptr model_;
    llama_context_ptr ctx_;
    int position_ = 0;
};

/// Largest |a - b| in units of b's standard deviation.
double distance(const Logits& a, const Logits& b);
Token argmax(const Logits& logits);
/// Checks distance and, where b's best token leads by more than both errors together can explain, the best token.
void expect_close(const Logits& a, const Logits& b, double tolerance, const std::string& what);
/// Checks that all rows are equal bit by bit.
void expect_same_bits(const std::vector<Logits>& a, const std::vector<Logits>& b, const std::string& what);

/// Seeded pseudo-random tokens below `vocab`.
std::vector<Token> random_tokens(int count, int vocab, std::uint32_t seed);

/// A model file in memory, to be written back with something changed.
class GgufEdit {
 public:
    explicit GgufEdit(const std::string& path);

    GgufEdit& remove_key(const std::string& key);
    GgufEdit& set(const std::string& key, std::uint32_t value);
    GgufEdit& set(const std::string& key, float value);
    GgufEdit& set(const std::string& key, bool value);
    GgufEdit& set(const std::string& key, const char* value);
    GgufEdit& set(const std::string& key, const std::vector<std::int32_t>& values);
    GgufEdit& set_token(std::size_t index, const std::string& text);

    GgufEdit& remove_tensor(const std::string& name);
    GgufEdit& add_vector(const std::string& name, int length);
    GgufEdit& set_i64(const std::string& name, int index, std::int64_t value);
    /// Converts every matrix to `type`.
    GgufEdit& convert(ggml_type type);

    std::vector<std::string> keys() const;
    std::vector<std::string> tensors() const;
    /// Writes to scratch_path(name) and returns the path.
    std::string write(const std::string& name) const;

 private:
    gguf_context_ptr header_;
    std::vector<ggml_context_ptr> contexts_;
    std::vector<ggml_tensor*> tensors_;
};

}  // namespace bastion::test
