// The drafter against an independent reference (tests/models/reference.py), and against itself in other batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "support.h"

namespace bastion::test {
namespace {

// The reference works in float64 and rounds keys and values to f16 once, as the engine's cache does. The engine also
// rounds queries, attention weights and sums (f16 attention kernels); log-probabilities here spread over about 10.
constexpr double kTolerance = 0.03;

struct ReferenceCase {
    int positions, width, rows, vocab;
    Token anchor;
    int anchor_position;
    std::vector<float> features;    ///< [positions][width]
    std::vector<std::int32_t> ids;  ///< [vocab]
    std::vector<float> logprobs;    ///< [rows][vocab]
};

template <class T>
std::vector<T> read_values(std::istream& in, std::size_t count) {
    std::vector<T> values(count);
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
    return values;
}

std::vector<ReferenceCase> read_cases(const std::string& drafter) {
    std::ifstream in(reference_path(drafter), std::ios::binary);
    if (!in) throw std::runtime_error("no reference for " + drafter);
    std::vector<ReferenceCase> cases(read_values<std::int32_t>(in, 1)[0]);
    for (ReferenceCase& c : cases) {
        const auto sizes = read_values<std::int32_t>(in, 6);
        c = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], {}, {}, {}};
        c.features = read_values<float>(in, static_cast<std::size_t>(c.positions) * c.width);
        c.ids = read_values<std::int32_t>(in, c.vocab);
        c.logprobs = read_values<float>(in, static_cast<std::size_t>(c.rows) * c.vocab);
    }
    if (!in) throw std::runtime_error("the reference of " + drafter + " is too short");
    return cases;
}

struct Pair {
    const char* target;
    const char* drafter;
};

constexpr Pair kPairs[] = {{"tiny-llama3", "tiny-llama3-dflash"},        {"tiny-llama3", "tiny-llama3-dflash-own"},
                           {"tiny-llama3", "tiny-llama3-dflash-tied"},   {"tiny-llama3", "tiny-llama3-dflash-d2t"},
                           {"tiny-llama3", "tiny-llama3-dflash-window"}, {"tiny-qwen3", "tiny-qwen3-dflash"},
                           {"tiny-qwen3moe", "tiny-qwen3moe-dflash"}};

/// Entry `rank` must be a token whose log-probability is the rank-th largest, both within the tolerance.
void expect_lattice(const Lattice& lattice, const ReferenceCase& c, int topk, const std::string& what) {
    ASSERT_EQ(lattice.depth, c.rows) << what;
    ASSERT_EQ(lattice.width, topk) << what;
    ASSERT_EQ(lattice.tokens.size(), static_cast<std::size_t>(c.rows) * topk) << what;
    ASSERT_EQ(lattice.logprobs.size(), lattice.tokens.size()) << what;
    for (int row = 0; row < c.rows; ++row) {
        const float* expected = &c.logprobs[static_cast<std::size_t>(row) * c.vocab];
        std::vector<float> sorted(expected, expected + c.vocab);
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        std::set<Token> distinct;
        for (int rank = 0; rank < topk; ++rank) {
            const std::string where = what + ", row " + std::to_string(row) + ", rank " + std::to_string(rank);
            EXPECT_NEAR(lattice.logprob(row, rank), sorted[rank], kTolerance) << where;
            const auto id = std::find(c.ids.begin(), c.ids.end(), lattice.token(row, rank));
            ASSERT_NE(id, c.ids.end()) << where << ": token " << lattice.token(row, rank) << " is not in the head";
            EXPECT_NEAR(expected[id - c.ids.begin()], lattice.logprob(row, rank), kTolerance) << where;
            distinct.insert(lattice.token(row, rank));
            if (rank == 0) continue;
            const bool sorted_so = lattice.logprob(row, rank - 1) > lattice.logprob(row, rank) ||
                                   (lattice.logprob(row, rank - 1) == lattice.logprob(row, rank) &&
                                    lattice.token(row, rank - 1) < lattice.token(row, rank));
            EXPECT_TRUE(sorted_so) << where << " is out of order";
        }
        EXPECT_EQ(distinct.size(), static_cast<std::size_t>(topk)) << what << ": a token occurs twice";
    }
}

void expect_same(const Lattice& a, const Lattice& b, const std::string& what) {
    EXPECT_EQ(a.tokens, b.tokens) << what;
    EXPECT_EQ(a.logprobs, b.logprobs) << what;
}

class DrafterTest : public testing::TestWithParam<Pair> {
 protected:
    Lattice draft_fresh(TargetRig& target, const ReferenceCase& c, int topk) {
        DrafterRig rig(target, model_path(GetParam().drafter), 1, 64, nullptr, 48);
        rig.set_features(c.features);
        rig.inject(0, 0, c.positions, 0);
        return rig.draft({{0, c.anchor, c.anchor_position}}, topk).front();
    }
    std::string target_path() const { return model_path(GetParam().target); }
};

TEST_P(DrafterTest, LatticeAgreesWithTheReference) {
    for (const Kernels kernels : {Kernels::automatic, Kernels::generic, Kernels::library}) {
        TargetRig target(target_path(), {.kernels = kernels});
        int number = 0;
        for (const ReferenceCase& c : read_cases(GetParam().drafter)) {
            for (const int topk : {1, 8, 20}) {
                expect_lattice(draft_fresh(target, c, topk), c, topk,
                               "case " + std::to_string(number) + ", top " + std::to_string(topk));
            }
            ++number;
        }
        EXPECT_EQ(number, 3);
    }
}

TEST_P(DrafterTest, WholeVocabularySumsToOne) {
    TargetRig target(target_path());
    const ReferenceCase c = read_cases(GetParam().drafter)[0];
    const Lattice lattice = draft_fresh(target, c, c.vocab);
    for (int row = 0; row < lattice.depth; ++row) {
        double sum = 0;
        for (int rank = 0; rank < lattice.width; ++rank) sum += std::exp(lattice.logprob(row, rank));
        EXPECT_NEAR(sum, 1.0, 1e-4) << "row " << row;
    }
}

TEST_P(DrafterTest, InjectionInAnyChunksGivesTheSameLattice) {
    TargetRig target(target_path());
    const ReferenceCase c = read_cases(GetParam().drafter)[0];
    const Lattice whole = draft_fresh(target, c, 8);
    for (const int chunk : {1, 3, 16, 39}) {
        DrafterRig rig(target, model_path(GetParam().drafter), 1, 64, nullptr, 48);
        rig.set_features(c.features);
        for (int first = 0; first < c.positions; first += chunk) {
            rig.inject(0, first, std::min(chunk, c.positions - first), first);
        }
        expect_same(rig.draft({{0, c.anchor, c.anchor_position}}, 8).front(), whole,
                    "chunks of " + std::to_string(chunk));
    }
}

TEST_P(DrafterTest, RequestsInOneBatchEqualSingleOnes) {
    TargetRig target(target_path());
    const auto cases = read_cases(GetParam().drafter);
    DrafterRig rig(target, model_path(GetParam().drafter), 3, 64, nullptr, 80);
    std::vector<float> features;
    std::vector<std::vector<std::int32_t>> rows(3), positions(3);
    std::vector<Injection> injections;
    std::vector<DraftRequest> requests;
    int row = 0;
    const int slots[] = {2, 0, 1};
    for (int i = 0; i < 3; ++i) {
        features.insert(features.end(), cases[i].features.begin(), cases[i].features.end());
        rows[i].resize(cases[i].positions);
        positions[i].resize(cases[i].positions);
        std::iota(rows[i].begin(), rows[i].end(), row);
        std::iota(positions[i].begin(), positions[i].end(), 0);
        row += cases[i].positions;
        injections.push_back({slots[i], rows[i], positions[i]});
        requests.push_back({slots[i], cases[i].anchor, cases[i].anchor_position});
    }
    rig.set_features(features);
    rig.inject(injections);
    const auto lattices = rig.draft(requests, 8);
    ASSERT_EQ(lattices.size(), 3u);
    for (int i = 0; i < 3; ++i) {
        expect_same(lattices[i], draft_fresh(target, cases[i], 8), "request " + std::to_string(i));
    }
}

TEST_P(DrafterTest, DraftingLeavesNothingBehind) {
    // The block's own keys and values are scratch: drafting twice, or injecting over them, must not show.
    TargetRig target(target_path());
    const ReferenceCase c = read_cases(GetParam().drafter)[0];
    DrafterRig rig(target, model_path(GetParam().drafter), 1, 64, nullptr, 48);
    rig.set_features(c.features);
    rig.inject(0, 0, 30, 0);
    rig.draft({{0, 5, 30}}, 8);
    rig.draft({{0, 6, 30}}, 8);
    rig.inject(0, 30, 10, 30);
    expect_same(rig.draft({{0, c.anchor, c.anchor_position}}, 8).front(), draft_fresh(target, c, 8), "after drafting");
}

TEST_P(DrafterTest, ThreadsDoNotChangeTheLattice) {
    const ReferenceCase c = read_cases(GetParam().drafter)[0];
    TargetRig one(target_path(), {.threads = 1}), three(target_path(), {.threads = 3});
    expect_same(draft_fresh(three, c, 8), draft_fresh(one, c, 8), "3 threads");
}

INSTANTIATE_TEST_SUITE_P(Pairs, DrafterTest, testing::ValuesIn(kPairs), [](const auto& chosen) {
    std::string name = chosen.param.drafter;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

TEST(ReducedVocabulary, HoldsTargetIds) {
    // The test is only worth something if head rows and target ids differ.
    const ReferenceCase c = read_cases("tiny-llama3-dflash-d2t")[0];
    ASSERT_LT(c.vocab, 320);
    TargetRig target(model_path("tiny-llama3"));
    DrafterRig rig(target, model_path("tiny-llama3-dflash-d2t"), 1, 64, nullptr, 48);
    rig.set_features(c.features);
    rig.inject(0, 0, c.positions, 0);
    const Lattice lattice = rig.draft({{0, c.anchor, c.anchor_position}}, 20).front();
    EXPECT_GT(*std::max_element(lattice.tokens.begin(), lattice.tokens.end()), c.vocab);
    for (const Token token : lattice.tokens) {
        EXPECT_TRUE(std::binary_search(c.ids.begin(), c.ids.end(), token)) << token;
    }
}

TEST(SlidingWindow, Matters) {
    // The same weights with and without the window must not agree, or the window case above shows nothing.
    const ReferenceCase c = read_cases("tiny-llama3-dflash-window")[0];
    const std::string without = GgufEdit(model_path("tiny-llama3-dflash-window"))
                                    .remove_key("dflash.attention.sliding_window")
                                    .remove_key("dflash.attention.sliding_window_pattern")
                                    .write("no-window.gguf");
    TargetRig target(model_path("tiny-llama3"));
    double largest = 0;
    std::vector<Lattice> lattices;
    for (const std::string& path : {model_path("tiny-llama3-dflash-window"), without}) {
        DrafterRig rig(target, path, 1, 64, nullptr, 48);
        rig.set_features(c.features);
        rig.inject(0, 0, c.positions, 0);
        lattices.push_back(rig.draft({{0, c.anchor, c.anchor_position}}, 1).front());
    }
    for (int row = 0; row < lattices[0].depth; ++row) {
        largest =
            std::max(largest, std::abs(static_cast<double>(lattices[0].logprob(row, 0)) - lattices[1].logprob(row, 0)));
    }
    EXPECT_GT(largest, 3 * kTolerance);
}

/// Mean number of tokens gained a block by the drafter's top-1 path over the target's own greedy continuation.
double mean_gain(TargetRig& target, DrafterRig& drafter, const std::vector<Token>& prompt, int steps) {
    std::vector<Token> text = prompt;
    Rows rows = Rows::chain(0, prompt);
    rows.feature_rows = target.pool().take(rows.size());
    Logits logits = target.pass(rows).back();
    drafter.inject(0, 0, rows.size(), rows.feature_rows.front());
    std::vector<Lattice> lattices;
    for (int step = 0; step < steps; ++step) {
        const int position = static_cast<int>(text.size());
        text.push_back(argmax(logits));
        lattices.push_back(drafter.draft({{0, text.back(), position}}, 8).front());
        Rows next = Rows::chain(position, {text.back()});
        next.feature_rows = target.pool().take(1);
        logits = target.pass(next).back();
        drafter.inject(0, position, 1, next.feature_rows.front());
    }
    double gained = 0;
    int blocks = 0;
    for (std::size_t i = 0; i + 8 < lattices.size(); ++i, ++blocks) {
        for (int row = 0; row < lattices[i].depth; ++row) {
            if (lattices[i].token(row, 0) != text[prompt.size() + i + 1 + row]) break;
            ++gained;
        }
    }
    return gained / blocks;
}

std::vector<int> embedded_taps() {
    const GgufFile file = must(GgufFile::open(smollm_drafter_path()));
    return must(read_drafter_config(file)).target_layers;
}

TEST(EmbeddedDrafter, FollowsTheTargetOnRepetitiveText) {
    for (const Kernels kernels : {Kernels::automatic, Kernels::generic, Kernels::library}) {
        TargetRig target(smollm_path(),
                         {.kernels = kernels, .cells = 256, .taps = embedded_taps(), .feature_rows = 256});
        DrafterRig drafter(target, smollm_drafter_path(), 1, 256, &target.pool());
        const auto prompt = Llama(smollm_path())
                                .tokenize(
                                    "<|im_start|>user\nCount from 1 to 30, separated by commas."
                                    "<|im_end|>\n<|im_start|>assistant\n1, 2, 3, 4, 5, 6,");
        EXPECT_GT(mean_gain(target, drafter, prompt, 40), 1.0) << name_of(kernels);
    }
}

TEST(EmbeddedDrafter, LatticeDoesNotDependOnChunksOrBatch) {
    // Quantised weights, unlike the tiny drafters above: their kernels must be independent of the number of rows too.
    for (const Kernels kernels : {Kernels::automatic, Kernels::generic}) {
        TargetRig target(smollm_path(), {.kernels = kernels, .cells = 64, .taps = embedded_taps(), .feature_rows = 64});
        Rows rows = Rows::chain(0, random_tokens(33, target.config().vocab, 61));
        rows.feature_rows = target.pool().take(33);
        target.pass(rows);
        DrafterRig drafter(target, smollm_drafter_path(), 3, 64, &target.pool());
        const int chunks[] = {33, 1, 7};
        for (int slot = 0; slot < 3; ++slot) {
            for (int first = 0; first < 33; first += chunks[slot]) {
                drafter.inject(slot, first, std::min(chunks[slot], 33 - first), rows.feature_rows[first]);
            }
        }
        const Lattice alone = drafter.draft({{0, 7, 33}}, 8).front();
        const auto together = drafter.draft({{1, 7, 33}, {2, 7, 33}, {0, 9, 20}}, 8);
        expect_same(together[0], alone, name_of(kernels) + ", position by position");
        expect_same(together[1], alone, name_of(kernels) + ", chunks of 7");
        EXPECT_NE(together[2].logprobs, alone.logprobs) << "another position and anchor";
    }
}

}  // namespace
}  // namespace bastion::test
