// The promise: the same model, prompt, seed and sampling options give the same tokens for every method, budget, thread
// count and batch (docs/exactness.md). Equality is of token ids and bytes; nothing is statistical.
#include <gtest/gtest.h>

#include "engine/support.h"

namespace bastion::test {
namespace {

constexpr int kTokens = 128;

/// Sampling of the i-th prompt: half greedy, half at temperature 1, each with its own seed; some with filters.
SamplingOptions sampling_for(std::size_t i) {
    SamplingOptions s;
    s.seed = 1000 + i;
    s.temperature = i % 2 == 0 ? 0.0 : 1.0;
    if (i % 8 == 3) s.top_k = 40;
    if (i % 8 == 5) s.top_p = 0.9;
    if (i % 8 == 7) s.min_p = 0.05;
    return s;
}

/// Every way to decode a prompt, apart from `ar`.
std::vector<GenerateOptions> methods_for(std::size_t i) {
    std::vector<GenerateOptions> all{method(Method::chain), method(Method::tree)};
    for (int budget : {1, 2, 7, 12}) all.push_back(method(Method::tree, budget));
    if (i < 3) {
        all.push_back(method(Method::tree, 64));
        all.push_back(method(Method::beam));
    }
    for (GenerateOptions& o : all) {
        o.max_tokens = kTokens;
        o.sampling = sampling_for(i);
        o.beam_width = 3;
        o.beam_depth = 4;
    }
    return all;
}

Engine& shared_engine() {
    static const std::unique_ptr<Engine> engine = [] {
        EngineOptions options;
        options.slots = 9;
        options.ctx = 512;
        return open_embedded(options);
    }();
    return *engine;
}

class SameText : public testing::TestWithParam<std::size_t> {};

// Plain decoding alone against all other methods at once in one batch: that also proves that company does not matter.
TEST_P(SameText, ForEveryMethodAndBudget) {
    Engine& engine = shared_engine();
    const std::size_t i = GetParam();
    const std::vector<Token> prompt = chat_prompt(engine, sample_prompts()[i]);
    GenerateOptions plain = method(Method::ar, 0, kTokens);
    plain.sampling = sampling_for(i);
    const Answer expected = answer(engine, prompt, plain);
    ASSERT_FALSE(expected.tokens.empty());

    const std::vector<GenerateOptions> all = methods_for(i);
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> batch;
    for (const GenerateOptions& o : all) {
        sessions.push_back(new_session(engine));
        batch.push_back(sessions.back().get());
        ASSERT_TRUE(batch.back()->begin(prompt, o).ok());
    }
    const std::vector<Answer> answers = finish(engine, batch);
    for (std::size_t m = 0; m < all.size(); ++m) {
        EXPECT_EQ(answers[m].tokens, expected.tokens)
            << "method " << static_cast<int>(all[m].method) << ", budget " << all[m].budget;
        EXPECT_EQ(answers[m].text, expected.text);
        EXPECT_EQ(answers[m].stats.tokens, expected.stats.tokens);
        EXPECT_EQ(answers[m].stats.stop_reason, expected.stats.stop_reason);
    }
}

INSTANTIATE_TEST_SUITE_P(Prompts, SameText, testing::Range<std::size_t>(0, 32));

// Speculation must really happen, or the tests above would compare plain decoding with itself.
TEST(Speculation, AcceptsDraftedTokens) {
    Engine& engine = shared_engine();
    int cycles = 0, tokens = 0;
    for (const char* text : {"Count from 1 to 40, separated by commas.", "List the days of the week in order."}) {
        const Answer a = answer(engine, chat_prompt(engine, text), method(Method::tree, 12, 64));
        cycles += a.stats.cycles;
        tokens += a.stats.cycle_tokens;
        EXPECT_GT(a.stats.mean_nodes(), 6.0);
    }
    EXPECT_GT(tokens, cycles * 5 / 4);
}

// Greedy and sampled text of one set-up: plain decoding equals a tree, and all set-ups of one kernel path agree.
TEST(SameTextAcross, ThreadsAndBatches) {
    const std::string text = "Explain what a hash table is and give its average costs.";
    for (const Kernels kernels : {Kernels::automatic, Kernels::generic}) {
        std::vector<Token> expected;
        for (const int threads : {1, 2, 3}) {
            EngineOptions options;
            options.threads = threads;
            options.kernels = kernels;
            options.ctx = 256;
            const auto engine = open_embedded(options);
            const std::vector<Token> prompt = chat_prompt(*engine, text);
            GenerateOptions o = method(threads == 2 ? Method::tree : Method::ar, threads == 2 ? 7 : 0, 40);
            o.sampling.temperature = 0.8;
            o.sampling.seed = 5;
            const Answer a = answer(*engine, prompt, o);
            if (expected.empty()) expected = a.tokens;
            EXPECT_EQ(a.tokens, expected) << threads << " threads";
        }
    }
}

TEST(SameTextAcross, CacheTypesWithinThemselves) {
    for (const KvType type : {KvType::bf16, KvType::q8_0}) {
        EngineOptions options;
        options.kv_type = type;
        options.ctx = 256;
        const auto engine = open_embedded(options);
        const std::vector<Token> prompt = chat_prompt(*engine, "Name ten animals that live in the ocean.");
        const Answer plain = answer(*engine, prompt, method(Method::ar));
        const Answer tree = answer(*engine, prompt, method(Method::tree, 12));
        EXPECT_EQ(tree.tokens, plain.tokens);
        EXPECT_GT(tree.stats.tau(), 1.2) << "a quantised cache must not spoil the draft";
    }
}

}  // namespace
}  // namespace bastion::test
