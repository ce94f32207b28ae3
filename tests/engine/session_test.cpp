// Stopping, counting, limits, sampling options and reuse: what must hold inside one session, whatever is accepted.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/support.h"
#include "text/stream.h"

namespace bastion::test {
namespace {

const std::vector<Token>& counting() {
    static const std::vector<Token> prompt = chat_prompt(shared_engine(), "Count from 1 to 40, separated by commas.");
    return prompt;
}

const std::vector<GenerateOptions>& all_methods() {
    static const std::vector<GenerateOptions> all{method(Method::ar), method(Method::chain), method(Method::tree),
                                                  method(Method::tree, 12)};
    return all;
}

TEST(Length, IsWhatWasAskedFor) {
    for (GenerateOptions o : all_methods()) {
        for (int wanted = 1; wanted <= 20; ++wanted) {
            o.max_tokens = wanted;
            const Answer a = answer(shared_engine(), counting(), o);
            EXPECT_EQ(static_cast<int>(a.tokens.size()), wanted);
            EXPECT_EQ(a.stats.tokens, wanted);
            EXPECT_EQ(a.stats.stop_reason, StopReason::length);
            EXPECT_EQ(a.stats.cycle_tokens, wanted - 1) << "the prefill draws the first token";
        }
    }
}

TEST(Length, EndsAtTheContext) {
    EngineOptions options;
    options.ctx = 64;
    const auto small = open_embedded(options);
    std::vector<Token> prompt = chat_prompt(*small, "Repeat the word echo twenty times. Then repeat it again, please.");
    prompt.resize(56, prompt.back());
    std::vector<Token> expected;
    for (GenerateOptions o : all_methods()) {
        o.max_tokens = 100;
        o.ignore_eos = true;
        const Answer a = answer(*small, prompt, o);
        EXPECT_EQ(a.tokens.size(), 8u);
        EXPECT_EQ(a.stats.stop_reason, StopReason::length);
        if (expected.empty()) expected = a.tokens;
        EXPECT_EQ(a.tokens, expected);
    }
}

TEST(Length, OfThePromptIsChecked) {
    const auto session = new_session(shared_engine());
    const Status empty = session->begin({}, method(Method::ar));
    ASSERT_FALSE(empty.ok());
    EXPECT_EQ(empty.error().kind, ErrorKind::bad_input);
    const Status too_long = session->begin(std::vector<Token>(600, 10), method(Method::ar));
    ASSERT_FALSE(too_long.ok());
    EXPECT_NE(too_long.error().message.find("600"), std::string::npos);
    EXPECT_NE(too_long.error().message.find("512"), std::string::npos);
    EXPECT_FALSE(session->begin({49152}, method(Method::ar)).ok()) << "a token outside the vocabulary";
    const Answer one = answer(shared_engine(), *session, {1}, method(Method::tree, 7, 8));
    EXPECT_LE(one.tokens.size(), 8u) << "a prompt of one token works";
}

TEST(Budget, RunsOrIsRefused) {
    std::vector<Token> expected = answer(shared_engine(), counting(), method(Method::ar, 0, 16)).tokens;
    for (int budget : {1, 2, 7, 12, 1024}) {
        EXPECT_EQ(answer(shared_engine(), counting(), method(Method::tree, budget, 16)).tokens, expected) << budget;
    }
    GenerateOptions narrow = method(Method::tree, 1024, 16);
    narrow.topk = 1;  // a lattice of 7 nodes: the budget is above its size
    narrow.no_lookup = true;
    const Answer a = answer(shared_engine(), counting(), narrow);
    EXPECT_EQ(a.tokens, expected);
    EXPECT_LE(a.stats.mean_nodes(), 8.0);
    for (int budget : {-1, 1025}) {
        const Status refused = shared_engine().check(method(Method::tree, budget));
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().message.find("budget"), std::string::npos);
    }
}

TEST(Chain, EqualsASpineOnlyTree) {
    GenerateOptions spine = method(Method::tree, 8);
    spine.topk = 1;
    spine.no_lookup = true;
    const Answer tree = answer(shared_engine(), counting(), spine);
    const Answer chain = answer(shared_engine(), counting(), method(Method::chain));
    EXPECT_EQ(tree.tokens, chain.tokens);
    EXPECT_EQ(tree.stats.cycles, chain.stats.cycles);
}

TEST(Stop, AtEndOfTextNothingFollows) {
    const std::vector<Token> prompt =
        chat_prompt(shared_engine(), "What is the capital of France? Answer in one word.");
    for (GenerateOptions o : all_methods()) {
        o.max_tokens = 200;
        const Answer a = answer(shared_engine(), prompt, o);
        ASSERT_EQ(a.stats.stop_reason, StopReason::eos);
        EXPECT_EQ(a.stats.tokens, static_cast<int>(a.tokens.size()));
        EXPECT_EQ(a.text.find("<|im_end|>"), std::string::npos);
        for (Token t : a.tokens) EXPECT_NE(t, 2) << "the end token is not part of the answer";
    }
}

TEST(Stop, AtATextExactlyBeforeIt) {
    const std::string whole = answer(shared_engine(), counting(), method(Method::ar, 0, 40)).text;
    ASSERT_GT(whole.size(), 30u);
    // Within a token, about a token, over several tokens.
    for (const std::string& stop :
         {whole.substr(9, 1), whole.substr(whole.size() / 3, 3), whole.substr(whole.size() / 2, 9)}) {
        for (GenerateOptions o : all_methods()) {
            o.max_tokens = 40;
            o.stop = {stop, "never in the answer"};
            const Answer a = answer(shared_engine(), counting(), o);
            EXPECT_EQ(a.text, whole.substr(0, whole.find(stop))) << stop;
            EXPECT_EQ(a.stats.stop_reason, StopReason::stop);
            EXPECT_EQ(a.stats.tokens, static_cast<int>(a.tokens.size()));
        }
    }
}

TEST(Stream, IsValidUtf8AndJoinsToTheWhole) {
    const std::vector<Token> prompt =
        chat_prompt(shared_engine(), "Repeat exactly: 😀 日本語 naïve 👩‍👩‍👧 ñandú");
    for (GenerateOptions o : all_methods()) {
        o.ignore_eos = true;
        o.sampling.temperature = 1.5;
        o.sampling.seed = 3;
        const auto session = new_session(shared_engine());
        ASSERT_TRUE(session->begin(prompt, o).ok());
        Session* one = session.get();
        std::string joined, bytes;
        while (!session->done()) {
            ASSERT_TRUE(shared_engine().step({&one, 1}).ok());
            const std::string chunk = session->take_text();
            EXPECT_EQ(chunk, sanitize_utf8(chunk)) << "every chunk is valid by itself";
            joined += chunk;
        }
        joined += session->take_text();
        for (Token t : session->answer()) bytes += shared_engine().piece(t);
        EXPECT_EQ(joined, sanitize_utf8(bytes));
    }
}

TEST(Sampling, OfTheSingleMostLikelyIsGreedy) {
    GenerateOptions o = method(Method::tree, 7);
    const std::vector<Token> greedy = answer(shared_engine(), counting(), o).tokens;
    o.sampling.temperature = 1.0;
    o.sampling.top_k = 1;
    EXPECT_EQ(answer(shared_engine(), counting(), o).tokens, greedy);
}

TEST(Sampling, DependsOnTheSeedAlone) {
    GenerateOptions o = method(Method::tree, 7);
    o.sampling.temperature = 1.0;
    o.sampling.seed = 1;
    const std::vector<Token> first = answer(shared_engine(), counting(), o).tokens;
    EXPECT_EQ(answer(shared_engine(), counting(), o).tokens, first);
    o.sampling.seed = 2;
    EXPECT_NE(answer(shared_engine(), counting(), o).tokens, first);
}

TEST(Sampling, TakesEveryOptionOnDraftedTokensToo) {
    std::vector<SamplingOptions> variants;
    for (double temperature : {0.0, 0.3, 1.0, 1.5}) {
        SamplingOptions s;
        s.temperature = temperature;
        s.seed = 11;
        s.repeat_penalty = 1.3;
        variants.push_back(s);
        s.repeat_penalty = 1.0;
        s.presence_penalty = 0.7;
        s.frequency_penalty = 0.4;
        s.top_p = 0.8;
        variants.push_back(s);
        s.top_k = 12;
        s.min_p = 0.02;
        variants.push_back(s);
    }
    for (const SamplingOptions& s : variants) {
        GenerateOptions plain = method(Method::ar), tree = method(Method::tree, 12), chain = method(Method::chain);
        plain.sampling = tree.sampling = chain.sampling = s;
        const std::vector<Token> expected = answer(shared_engine(), counting(), plain).tokens;
        EXPECT_EQ(answer(shared_engine(), counting(), tree).tokens, expected) << "temperature " << s.temperature;
        EXPECT_EQ(answer(shared_engine(), counting(), chain).tokens, expected) << "temperature " << s.temperature;
    }
}

TEST(Sampling, NeverDrawsABannedToken) {
    const std::vector<Token> free = answer(shared_engine(), counting(), method(Method::tree, 12)).tokens;
    const Token banned = free[free.size() / 2];
    for (GenerateOptions o : all_methods()) {
        o.sampling.logit_bias = {{banned, -INFINITY}};
        const Answer a = answer(shared_engine(), counting(), o);
        EXPECT_EQ(std::count(a.tokens.begin(), a.tokens.end(), banned), 0);
    }
}

TEST(Sampling, RefusesWhatItCannotDo) {
    const auto refused = [](auto&& change) {
        GenerateOptions o = method(Method::ar);
        change(o);
        return !shared_engine().check(o).ok();
    };
    EXPECT_TRUE(refused([](auto& o) { o.sampling.temperature = -1; }));
    EXPECT_TRUE(refused([](auto& o) { o.sampling.temperature = NAN; }));
    EXPECT_TRUE(refused([](auto& o) { o.sampling.top_p = 0; }));
    EXPECT_TRUE(refused([](auto& o) { o.sampling.min_p = 1.5; }));
    EXPECT_TRUE(refused([](auto& o) { o.sampling.logit_bias = {{1 << 30, 1.0f}}; }));
    EXPECT_TRUE(refused([](auto& o) { o.max_tokens = 0; }));
    EXPECT_TRUE(refused([](auto& o) { o.topk = 0; }));
    EXPECT_FALSE(refused([](auto&) {}));
}

TEST(Reuse, OfASlotLeavesNoTrace) {
    const std::vector<Token> other = chat_prompt(shared_engine(), "Write a poem in which every line begins with S.");
    GenerateOptions o = method(Method::tree, 12);
    o.no_lookup = true;  // how far copies are trusted is learned over all sessions
    const Answer long_fresh = answer(shared_engine(), counting(), o);
    const Answer short_fresh = answer(shared_engine(), {1, 30, 31}, o);

    const auto session = new_session(shared_engine());
    const Answer first = answer(shared_engine(), *session, counting(), o);
    answer(shared_engine(), *session, other, o);
    const Answer brief = answer(shared_engine(), *session, {1, 30, 31}, o);
    const Answer again = answer(shared_engine(), *session, counting(), o);
    for (const Answer* a : {&first, &again}) {
        EXPECT_EQ(a->tokens, long_fresh.tokens);
        EXPECT_EQ(a->stats.cycles, long_fresh.stats.cycles) << "the draft is as good as in a fresh session";
    }
    EXPECT_EQ(brief.tokens, short_fresh.tokens);
    EXPECT_EQ(brief.stats.cycles, short_fresh.stats.cycles);
}

TEST(Reuse, OfTheSamePromptKeepsItsCache) {
    const auto session = new_session(shared_engine());
    GenerateOptions o = method(Method::tree, 12);
    o.no_lookup = true;  // as above
    const Answer first = answer(shared_engine(), *session, counting(), o);
    const Answer second = answer(shared_engine(), *session, counting(), o);
    EXPECT_EQ(second.stats.reused_tokens, static_cast<int>(counting().size()) - 1);
    EXPECT_EQ(second.tokens, first.tokens);
    EXPECT_EQ(second.stats.cycles, first.stats.cycles);
}

TEST(Reuse, OfAConversationEqualsAFreshOne) {
    const auto session = new_session(shared_engine());
    std::vector<Token> conversation = counting();
    for (const Method m : {Method::ar, Method::tree, Method::chain}) {
        const Answer kept = answer(shared_engine(), *session, conversation, method(m, 0, 24));
        const std::vector<Token> grown = session->tokens();
        EXPECT_GE(kept.stats.reused_tokens, m == Method::ar ? 0 : static_cast<int>(conversation.size()) - 8);
        conversation = grown;
        const std::vector<Token> next = shared_engine().encode(", and then", false);
        conversation.insert(conversation.end(), next.begin(), next.end());
    }
    GenerateOptions o = method(Method::tree, 12, 24);
    o.no_lookup = true;  // as above
    const Answer kept = answer(shared_engine(), *session, conversation, o);
    ASSERT_GT(kept.stats.reused_tokens, 0);
    session->interrupt();
    EXPECT_TRUE(session->done());
    // The only slot of the engine is the session's: a second engine gives the fresh answer.
    EngineOptions options;
    options.ctx = 512;
    const auto fresh = open_embedded(options);
    const Answer alone = answer(*fresh, conversation, o);
    EXPECT_EQ(kept.tokens, alone.tokens);
    EXPECT_EQ(kept.stats.cycles, alone.stats.cycles);
}

TEST(Interrupt, KeepsTheTextSoFar) {
    const auto session = new_session(shared_engine());
    ASSERT_TRUE(session->begin(counting(), method(Method::tree, 7)).ok());
    Session* one = session.get();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(shared_engine().step({&one, 1}).ok());
    session->interrupt();
    EXPECT_TRUE(session->done());
    EXPECT_EQ(session->stats().stop_reason, StopReason::interrupted);
    EXPECT_FALSE(session->take_text().empty());
    EXPECT_EQ(session->stats().tokens, static_cast<int>(session->answer().size()));
}

TEST(Slots, AreCountedAndGivenBack) {
    auto session = new_session(shared_engine());
    EXPECT_FALSE(shared_engine().open_session().ok()) << "this engine has one slot";
    session.reset();
    EXPECT_TRUE(shared_engine().open_session().ok());
}

TEST(Statistics, SayWhyDraftingWasOff) {
    EXPECT_EQ(answer(shared_engine(), counting(), method(Method::ar)).stats.off_reason, "method ar");
    EXPECT_EQ(answer(shared_engine(), counting(), method(Method::tree, 1)).stats.off_reason, "budget 1");
    const Stats on = answer(shared_engine(), counting(), method(Method::tree, 7)).stats;
    EXPECT_LE(on.off_cycles, 1);
    EXPECT_EQ(on.budget, 7);

    EngineOptions options;
    options.ctx = 256;
    const auto bare = open_without_drafter(options);
    const Answer a = answer(*bare, counting(), method(Method::tree));
    EXPECT_EQ(a.stats.off_reason, "no drafter");
    EXPECT_EQ(a.stats.off_cycles, a.stats.cycles);
    EXPECT_EQ(a.tokens, answer(shared_engine(), counting(), method(Method::tree)).tokens);
}

TEST(Trace, ShowsEveryCycle) {
    const auto session = new_session(shared_engine());
    std::vector<CycleTrace> cycles;
    session->set_trace([&](const CycleTrace& c) { cycles.push_back(c); });
    const Answer a = answer(shared_engine(), *session, counting(), method(Method::tree, 7));
    ASSERT_EQ(static_cast<int>(cycles.size()), a.stats.cycles);
    const bool ended = a.stats.stop_reason == StopReason::eos;  // the end token is drawn, not emitted
    std::vector<Token> emitted{a.tokens.front()};
    for (const CycleTrace& c : cycles) {
        EXPECT_EQ(c.budget, static_cast<int>(c.nodes.size()));
        EXPECT_TRUE(c.nodes.front().accepted) << "the root is the anchor";
        EXPECT_EQ(std::count_if(c.nodes.begin(), c.nodes.end(), [](const auto& n) { return n.accepted; }),
                  static_cast<std::ptrdiff_t>(c.emitted.size()) + (&c == &cycles.back() && ended ? 1 : 0));
        emitted.insert(emitted.end(), c.emitted.begin(), c.emitted.end());
    }
    EXPECT_EQ(emitted, a.tokens);
}

TEST(Memory, IsRefusedBeforeItIsTaken) {
    EngineOptions options;
    options.target = BASTION_DEPS_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    options.ctx = 8192;
    options.slots = 1024;
    const auto engine = Engine::open(options);
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find("MiB"), std::string::npos);
    options.slots = 1;
    options.ctx = 8193;
    const auto beyond = Engine::open(options);
    ASSERT_FALSE(beyond.ok());
    EXPECT_NE(beyond.error().message.find("8192"), std::string::npos);
}

}  // namespace
}  // namespace bastion::test
