// The exactness promise of the model layer: a row's logits do not depend on what else is in the pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support.h"

namespace bastion::test {
namespace {

constexpr double kLibraryTolerance = 0.08;  // other kernels by shape, 8-bit activations (see target_parity_test.cpp)

/// A root and `count - 1` more nodes, each below a random earlier one; `deep` in 10 of them below the newest.
Rows random_tree(int count, int vocab, int deep, std::uint32_t seed) {
    std::mt19937 random(seed);
    Rows rows{0, 0, random_tokens(count, vocab, seed), {-1}, {}};
    for (int i = 1; i < count; ++i) {
        const bool below_newest = static_cast<int>(random() % 10) < deep;
        rows.parents.push_back(below_newest ? i - 1 : static_cast<std::int32_t>(random() % i));
    }
    return rows;
}

Rows spine(int count, int vocab) { return Rows::chain(0, random_tokens(count, vocab, 21)); }

Rows fan(int leaves, int vocab) {
    Rows rows{0, 0, random_tokens(leaves + 1, vocab, 22), std::vector<std::int32_t>(leaves + 1, 0), {}};
    rows.parents[0] = -1;
    return rows;
}

/// The spine of a chain with side branches at every depth: what best-first drafting makes of a sure drafter.
Rows comb(int depth, int vocab) {
    Rows rows{0, 0, random_tokens(1 + 2 * depth, vocab, 23), {-1}, {}};
    for (int d = 0; d < depth; ++d) {
        const std::int32_t parent = d == 0 ? 0 : 2 * d - 1;
        rows.parents.push_back(parent);
        rows.parents.push_back(parent);
    }
    return rows;
}

std::vector<std::pair<std::string, Rows>> shapes(int vocab) {
    return {{"one node", spine(1, vocab)},
            {"spine of 12", spine(12, vocab)},
            {"1 x 8", fan(8, vocab)},
            {"comb", comb(7, vocab)},
            {"bushy, 17 nodes", random_tree(17, vocab, 1, 24)},
            {"deep, 23 nodes", random_tree(23, vocab, 8, 25)},
            {"mixed, 40 nodes", random_tree(40, vocab, 5, 26)}};
}

Rows at(Rows rows, int committed, int slot = 0) {
    rows.committed = committed;
    rows.slot = slot;
    return rows;
}

struct Case {
    std::string model;
    ggml_type kv_type;
    Kernels kernels = Kernels::generic;
};

std::string path_of(const std::string& model) { return model == "smollm2" ? smollm_path() : model_path(model); }

class TreeEqualsChain : public testing::TestWithParam<Case> {
 protected:
    void SetUp() override {
        if (!available(GetParam().kernels)) GTEST_SKIP() << "no " << name_of(GetParam().kernels) << " kernels here";
    }
    TargetOptions options() const { return options(GetParam().kernels); }
    TargetOptions options(Kernels kernels) const {
        return {.kernels = kernels, .slots = 3, .kv_type = GetParam().kv_type};
    }
    std::string path() const { return path_of(GetParam().model); }
};

TEST_P(TreeEqualsChain, EveryNodeIsBitwiseItsAncestorPath) {
    TargetRig rig(path(), options());
    const int vocab = rig.config().vocab;
    const auto prefix = random_tokens(37, vocab, 27);
    rig.prefill(prefix);
    for (const auto& [name, shape] : shapes(vocab)) {
        const Rows rows = at(shape, 37);
        const auto tree = rig.pass(rows);
        expect_same_bits(tree, rig.one_by_one(rows), name);
    }
}

TEST_P(TreeEqualsChain, SiblingsAndCousinsAreNotSeen) {
    // Changing a token outside a node's path must leave the node alone; changing one on it must not.
    TargetRig rig(path(), options());
    const int vocab = rig.config().vocab;
    rig.prefill(random_tokens(20, vocab, 28));
    Rows rows = at(comb(5, vocab), 20);
    const auto before = rig.pass(rows);
    const int changed = 1;  // the spine's first node, ancestor of rows 3 and above
    rows.tokens[changed] = (rows.tokens[changed] + 1) % vocab;
    const auto after = rig.pass(rows);
    for (int i = 0; i < rows.size(); ++i) {
        const auto path_to = rows.path(i);
        const bool below = std::find(path_to.begin(), path_to.end(), changed) != path_to.end();
        EXPECT_EQ(before[i] != after[i], below) << "node " << i;
    }
}

TEST_P(TreeEqualsChain, PrefillInAnyChunksIsBitwiseOnePass) {
    TargetRig rig(path(), options());
    const auto tokens = random_tokens(61, rig.config().vocab, 29);
    const auto whole = rig.pass(Rows::chain(0, tokens));
    for (const int chunk : {1, 2, 3, 7, 16, 32, 60}) {
        std::vector<Logits> parts;
        for (int start = 0; start < 61; start += chunk) {
            const int end = std::min(start + chunk, 61);
            const std::vector<Token> piece(tokens.begin() + start, tokens.begin() + end);
            for (Logits& row : rig.pass(Rows::chain(start, piece, 1))) parts.push_back(std::move(row));
        }
        expect_same_bits(parts, whole, "chunks of " + std::to_string(chunk));
    }
}

TEST_P(TreeEqualsChain, LastRowAloneIsBitwiseTheLastOfAll) {
    TargetRig rig(path(), options());
    const auto tokens = random_tokens(19, rig.config().vocab, 30);
    const Logits alone = rig.prefill(tokens);
    expect_same_bits({rig.pass(Rows::chain(0, tokens, 1)).back()}, {alone}, "last row");
}

TEST_P(TreeEqualsChain, KeptRowsContinueBitwiseAsPlainDecoding) {
    TargetRig rig(path(), options());
    const int vocab = rig.config().vocab;
    const auto prefix = random_tokens(33, vocab, 31);
    rig.prefill(prefix);
    for (const auto& [name, shape] : shapes(vocab)) {
        const Rows rows = at(shape, 33);
        rig.pass(rows);
        const auto path_to_last = rows.path(rows.size() - 1);
        rig.keep(0, 33, path_to_last);
        const int committed = 33 + static_cast<int>(path_to_last.size());

        std::vector<Token> history = prefix;
        for (const auto row : path_to_last) history.push_back(rows.tokens[row]);
        rig.prefill(history, 1);
        const Rows next = at(random_tree(9, vocab, 5, 32), committed);
        expect_same_bits(rig.pass(next), rig.pass(at(next, committed, 1)), name + ", next tree");
        expect_same_bits(rig.pass(next), rig.one_by_one(at(next, committed, 1)), name + ", next tokens");
    }
}

TEST_P(TreeEqualsChain, SequencesInOnePassAreBitwiseAlone) {
    TargetRig rig(path(), options());
    const int vocab = rig.config().vocab;
    const std::vector<int> lengths{40, 5, 23};
    for (int slot = 0; slot < 3; ++slot) rig.prefill(random_tokens(lengths[slot], vocab, 33 + slot), slot);
    const std::vector<Rows> batch{at(comb(6, vocab), 40, 0), at(spine(4, vocab), 5, 1),
                                  at(random_tree(21, vocab, 4, 36), 23, 2)};
    for (const auto& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}, {1, 2}}) {
        std::vector<Rows> together;
        std::vector<Logits> alone;
        for (const int i : order) {
            together.push_back(batch[i]);
            for (Logits& row : rig.pass(batch[i])) alone.push_back(std::move(row));
        }
        expect_same_bits(rig.pass(together), alone, "batch starting with sequence " + std::to_string(order[0]));
    }
}

TEST_P(TreeEqualsChain, ThreadsDoNotChangeABit) {
    std::vector<std::vector<Logits>> results;
    for (const int threads : {1, 2, 3}) {
        TargetOptions chosen = options();
        chosen.threads = threads;
        TargetRig rig(path(), chosen);
        const int vocab = rig.config().vocab;
        rig.prefill(random_tokens(50, vocab, 37));
        results.push_back(rig.pass(at(random_tree(19, vocab, 5, 38), 50)));
    }
    expect_same_bits(results[1], results[0], "2 threads");
    expect_same_bits(results[2], results[0], "3 threads");
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char* model : {"smollm2", "tiny-llama3", "tiny-qwen3", "tiny-qwen3moe"}) {
        for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0}) all.push_back({model, type});
    }
    for (const char* type : {"f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"}) {
        all.push_back({std::string("tiny-llama3-") + type, GGML_TYPE_F16});
    }
    all.push_back({"tiny-llama256", GGML_TYPE_F16});
    for (const char* model : {"smollm2", "tiny-llama3-f16", "tiny-llama3-bf16", "tiny-llama3-q4_0", "tiny-llama3-q4_1",
                              "tiny-llama3-q5_0", "tiny-llama3-q5_1", "tiny-llama3-q8_0"}) {
        all.push_back({model, GGML_TYPE_F16, Kernels::packed});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Models, TreeEqualsChain, testing::ValuesIn(cases()), [](const auto& chosen) {
    std::string name =
        chosen.param.model + "_kv_" + ggml_type_name(chosen.param.kv_type) + "_" + name_of(chosen.param.kernels);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

TEST(LibraryKernels, NodesAreCloseToTheirPaths) {
    for (const char* model : {"smollm2", "tiny-llama3", "tiny-qwen3", "tiny-qwen3moe", "tiny-llama3-q4_0"}) {
        for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0}) {
            TargetRig rig(path_of(model), {.kernels = Kernels::library, .kv_type = type});
            const int vocab = rig.config().vocab;
            rig.prefill(random_tokens(37, vocab, 27));
            for (const auto& [name, shape] : shapes(vocab)) {
                const Rows rows = at(shape, 37);
                const auto tree = rig.pass(rows), chain = rig.one_by_one(rows);
                for (int i = 0; i < rows.size(); ++i) {
                    expect_close(tree[i], chain[i], kLibraryTolerance,
                                 std::string(model) + ", " + name + ", node " + std::to_string(i));
                }
            }
        }
    }
}

TEST(KQuants, TreesAreBitwiseChains) {
    for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
        const std::string name = ggml_type_name(type);
        const std::string path = GgufEdit(model_path("tiny-llama256")).convert(type).write("tree-" + name + ".gguf");
        for (const Kernels kernels : {Kernels::generic, Kernels::packed}) {
            if (!available(kernels)) continue;
            TargetRig rig(path, {.kernels = kernels});
            rig.prefill(random_tokens(30, 320, 39));
            const Rows rows = at(random_tree(30, 320, 5, 40), 30);
            expect_same_bits(rig.pass(rows), rig.one_by_one(rows), name + " " + name_of(kernels));
        }
    }
}

TEST(Experts, PackedTreesAreBitwiseChains) {
    if (!available(Kernels::packed)) GTEST_SKIP() << "no packed kernels here";
    for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_BF16}) {
        const std::string name = ggml_type_name(type);
        TargetRig rig(GgufEdit(model_path("tiny-qwen3moe")).convert(type).write("experts-" + name + ".gguf"),
                      {.kernels = Kernels::packed});
        rig.prefill(random_tokens(30, 320, 45));
        const Rows rows = at(random_tree(30, 320, 5, 46), 30);
        expect_same_bits(rig.pass(rows), rig.one_by_one(rows), name);
    }
}

TEST(PackedKernels, GiveTheSameBitsWithEveryInstructionSet) {
    if (!available(Kernels::packed_avx512)) GTEST_SKIP() << "no AVX-512 here";
    for (const char* name : {"tiny-llama3-q4_1", "tiny-llama3-bf16", "tiny-qwen3moe"}) {
        const std::string path = model_path(name);
        TargetRig narrow(path, {.kernels = Kernels::packed_avx2}), wide(path, {.kernels = Kernels::packed_avx512});
        for (TargetRig* rig : {&narrow, &wide}) rig->prefill(random_tokens(70, 320, 47));
        const Rows rows = at(random_tree(21, 320, 5, 48), 70);
        expect_same_bits(narrow.pass(rows), wide.pass(rows), path);
    }
}

TEST(LongContext, TreesAreBitwiseChainsAcrossBlockBoundaries) {
    // Attention may cut the context into blocks at fixed positions: start on both sides of likely ones.
    for (const Kernels kernels : {Kernels::generic, Kernels::packed}) {
        if (!available(kernels)) continue;
        TargetRig rig(model_path("tiny-llama3"), {.kernels = kernels, .cells = 640});
        const auto prefix = random_tokens(600, 320, 41);
        for (const int committed : {63, 64, 127, 255, 256, 257, 300, 511, 512, 600}) {
            for (int start = 0; start < committed; start += 100) {
                const int end = std::min(start + 100, committed);
                rig.prefill({prefix.begin() + start, prefix.begin() + end}, 0, start);
            }
            const Rows rows = at(random_tree(24, 320, 6, 42), committed);
            expect_same_bits(rig.pass(rows), rig.one_by_one(rows),
                             std::string(name_of(kernels)) + " after " + std::to_string(committed));
        }
    }
}

TEST(Features, OfATreeAreBitwiseThoseOfItsPaths) {
    TargetRig rig(model_path("tiny-llama3"), {.slots = 2, .taps = {1, 2, 3}, .feature_rows = 64});
    rig.prefill(random_tokens(11, 320, 43));
    Rows rows = at(random_tree(15, 320, 5, 44), 11);
    rows.feature_rows = rig.pool().take(15);
    rig.pass(rows);
    const auto tree = rig.features(rows.feature_rows);

    const auto path = rows.path(14);
    std::vector<Token> tokens;
    for (const auto row : path) tokens.push_back(rows.tokens[row]);
    rig.prefill(random_tokens(11, 320, 43), 1);
    Rows chain = Rows::chain(11, tokens, 1);
    chain.feature_rows = rig.pool().take(chain.size());
    rig.pass(chain);
    const auto plain = rig.features(chain.feature_rows);
    const std::size_t width = plain.size() / path.size();
    for (std::size_t i = 0; i < path.size(); ++i) {
        const Logits a(tree.begin() + path[i] * width, tree.begin() + (path[i] + 1) * width);
        const Logits b(plain.begin() + i * width, plain.begin() + (i + 1) * width);
        expect_same_bits({a}, {b}, "depth " + std::to_string(i));
    }
}

}  // namespace
}  // namespace bastion::test
