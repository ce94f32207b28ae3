// Vectorised softmax attention in blocks of places: what the tasks (attention_tasks.cpp) and the inner loops for each
// instruction set (attention_avx2.cpp, attention_avx512.cpp) share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "kernels/attention.h"

namespace bastion::kernels {

inline constexpr int kBlockPlaces = 32;  ///< places whose keys and values are converted together
inline constexpr int kPlaceGroup = 8;    ///< what conversions are rounded up to

// Between two passes the weights push the cache out of the processor's, and a head's part of a cell is too short for
// the hardware's prefetching to find the stride.
inline constexpr std::int64_t kPrefetchCells = 16;

/// A softmax over some of a row's places for one head: output so far (unnormalised), maximum and sum.
struct Running {
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
    float* out = nullptr;  ///< [head_dim]

    void reset(int d);
    /// Takes what further places gave.
    void merge(float other_maximum, float other_sum, const float* other_out, int d);
    void finish(int d) const;
};

/// One row with one head: its query, the segment at hand and the segments before.
struct Query {
    const float* query;
    Running segment, all;
};

/// The keys and values of a block as f32: keys [head_dim][kBlockPlaces], so that a vector holds one dimension of
/// several places, values [kBlockPlaces][head_dim]. Not initialised.
struct Block {
    explicit Block(int d)
        : keys(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(d) * kBlockPlaces)),
          values(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(d) * kBlockPlaces)) {}
    std::unique_ptr<float[]> keys, values;
};

/// One head's part of the cells of a layer.
struct HeadCells {
    const char *keys, *values;
    std::size_t key_stride, value_stride;  ///< bytes

    /// Asks for the place kPrefetchCells after this one. Nothing beyond the row's run: what is never read only takes
    /// the way of what is.
    void prefetch(const AttentionRow& row, std::int64_t place, int d) const {
        const std::int64_t ahead = place + kPrefetchCells;
        if (ahead >= row.run) return;
        const char* key = keys + (row.first_cell + ahead) * key_stride;
        const char* value = values + (row.first_cell + ahead) * value_stride;
        for (int j = 0; j < d; j += 32) {
            __builtin_prefetch(key + j * 2);
            __builtin_prefetch(value + j * 2);
        }
    }
};

/// The cell of a row's place.
inline std::int64_t cell_of(const AttentionPlan& plan, const AttentionRow& row, std::int64_t place) {
    return place < row.run ? row.first_cell + place : plan.extra[row.extra_begin + (place - row.run)];
}

/// The inner loops for one instruction set and one type of cache. All sets give the same bits.
struct AttentionLoops {
    /// Converts the places [from, to) of a row, from a multiple of kPlaceGroup, that begin a block at place `first`.
    /// Places up to the next multiple of kPlaceGroup beyond `to` repeat the last one.
    void (*convert)(const AttentionPlan& plan, const AttentionRow& row, std::int64_t first, int from, int to,
                    const HeadCells& cells, Block& block);
    /// Takes the first `valid` places of a block into the segments of as many queries as the entry's number plus one.
    void (*const* take_block)(Query* queries, const Block& block, int valid, int d, float scale);
    std::size_t queries;  ///< entries of take_block
};

// For caches of f16 or bf16 and heads of a multiple of 16 dimensions.
AttentionLoops attention_loops_avx2(ggml_type type);
AttentionLoops attention_loops_avx512(ggml_type type);

}  // namespace bastion::kernels
