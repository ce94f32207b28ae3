// The target model: one pass over the rows of any number of sequences, each a chain or a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/device.h"
#include "model/kv.h"
#include "model/weights.h"

namespace bastion {

/// The rows of one sequence in a pass. Row i sits at positions[i] and attends to the committed cells, its ancestors
/// among the rows, and itself. REQUIRES parents[i] < i; positions[i] = committed + depth of row i.
struct SequenceRows {
    int slot = 0;
    int committed = 0;                           ///< cells already computed
    std::span<const Token> tokens;               ///< [rows]
    std::span<const std::int32_t> positions;     ///< [rows]
    std::span<const std::int32_t> parents;       ///< [rows], row index or -1 for "the committed prefix"
    std::span<const std::int32_t> feature_rows;  ///< [rows] FeaturePool rows to fill; empty: none wanted
};

enum class Outputs {
    none,    ///< only the caches (and features): a prefill chunk that is not the last
    argmax,  ///< most likely token of every row
    logits,  ///< logits of every row stay readable until the next pass; argmax too
};

/// Weights are const after loading; the pass state (graphs, outputs) belongs to this object. One pass at a time.
class Target {
 public:
    /// Uses the weights and the device, which must outlive it. `taps`: layer inputs to write to `features`.
    Target(const ModelConfig& config, const Weights& weights, const Device& device, KvPool& kv, std::vector<int> taps,
           FeaturePool* features);
    ~Target();

    /// Computes all rows. Row numbering of the outputs: sequences in order, rows in order.
    /// `last_only`: outputs for the last row of each sequence alone (prefill); numbering is then by sequence.
    Status pass(std::span<const SequenceRows> sequences, Outputs outputs, bool last_only = false);

    Token argmax(int row) const;
    /// Copies the logits of one row [vocab]. REQUIRES the pass asked for them.
    void read_logits(int row, std::span<float> out) const;

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace bastion
