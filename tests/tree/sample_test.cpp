#include "tree/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/philox.h"

namespace bastion {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Candidate {
    Token id;
    double logit;
    double probability = 0;
};

double adjusted(const SamplingOptions& options, double logit, Token id, const std::vector<Token>& history) {
    for (const auto& [token, bias] : options.logit_bias) {
        if (token == id) logit += bias;
    }
    const std::size_t window = options.penalty_window < 0 ? history.size() : options.penalty_window;
    const std::size_t first = history.size() > window ? history.size() - window : 0;
    const auto count = std::count(history.begin() + static_cast<std::ptrdiff_t>(first), history.end(), id);
    if (count == 0) return logit;
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    return logit - (static_cast<double>(count) * options.frequency_penalty + options.presence_penalty);
}

void normalise(std::vector<Candidate>& candidates) {
    double total = 0;
    for (const Candidate& candidate : candidates) total += candidate.probability;
    for (Candidate& candidate : candidates) candidate.probability /= total;
}

/// The documented procedure with sorts of the whole vocabulary and probabilities normalised at every stage.
Token naive_draw(const SamplingOptions& options, const std::vector<float>& logits, const std::vector<Token>& history,
                 std::int64_t position) {
    std::vector<Candidate> all;
    for (Token id = 0; id < static_cast<Token>(logits.size()); ++id) {
        all.push_back({id, adjusted(options, logits[id], id, history)});
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
    if (options.temperature <= 0 || all[0].logit == -kInf) return all[0].id;  // -inf: everything is banned
    if (options.top_k > 0 && std::cmp_less(options.top_k, all.size())) all.resize(options.top_k);
    const double largest = all[0].logit;
    for (Candidate& c : all) c.probability = std::exp((c.logit - largest) / options.temperature);
    normalise(all);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
        return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
    });
    if (options.top_p < 1) {
        double cumulated = 0;
        std::size_t kept = 0;
        while (kept < all.size() && cumulated < options.top_p) cumulated += all[kept++].probability;
        all.resize(std::max<std::size_t>(kept, 1));
    }
    const double least = options.min_p * all[0].probability;
    while (all.size() > 1 && all.back().probability < least) all.pop_back();
    normalise(all);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    const double u = uniform_at(options.seed, options.choice, static_cast<std::uint64_t>(position));
    double cumulated = 0;
    for (const Candidate& candidate : all) {
        cumulated += candidate.probability;
        if (cumulated > u) return candidate.id;
    }
    return all.back().id;
}

std::vector<float> random_logits(std::mt19937& random, int vocab, bool tied) {
    std::vector<float> logits;
    for (int i = 0; i < vocab; ++i) {
        const float logit = std::normal_distribution<float>(0, 3)(random);
        logits.push_back(tied ? std::round(logit) : logit);
    }
    return logits;
}

double number(std::mt19937& random, double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
}

SamplingOptions random_options(std::mt19937& random, int vocab) {
    SamplingOptions options;
    options.temperature = random() % 8 == 0 ? 0.0 : number(random, 0.2, 2.5);
    if (random() % 2) options.top_k = 1 + static_cast<int>(random() % (vocab + 5));
    if (random() % 2) options.top_p = number(random, 0.05, 0.999);
    if (random() % 2) options.min_p = number(random, 0.001, 0.5);
    if (random() % 2) options.repeat_penalty = number(random, 0.7, 1.6);
    if (random() % 2) options.frequency_penalty = number(random, -0.5, 1.0);
    if (random() % 2) options.presence_penalty = number(random, -0.5, 1.0);
    options.penalty_window = static_cast<int>(random() % 12) - 1;
    options.seed = (static_cast<std::uint64_t>(random()) << 32) | random();
    options.choice = random() % 4;
    for (std::size_t i = random() % 4; i > 0; --i) {
        const float bias = random() % 3 == 0 ? -kInf : static_cast<float>(number(random, -3, 3));
        options.logit_bias.emplace_back(static_cast<Token>(random() % vocab), bias);
    }
    return options;
}

TEST(Sampler, DrawsWhatTheNaiveProcedureDraws) {
    std::map<Token, int> distinct;
    for (int seed = 0; seed < 3000; ++seed) {
        std::mt19937 random(seed);
        const int vocab = 1 + static_cast<int>(random() % 60);
        const auto logits = random_logits(random, vocab, seed % 3 == 0);
        const SamplingOptions options = random_options(random, vocab);
        std::vector<Token> history;
        for (std::size_t i = random() % 30; i > 0; --i) history.push_back(static_cast<Token>(random() % vocab));
        Sampler sampler(options);
        for (int position = 0; position < 4; ++position) {
            const Token drawn = sampler.draw(logits, history, position);
            EXPECT_EQ(drawn, naive_draw(options, logits, history, position)) << "seed " << seed;
            ++distinct[drawn];
        }
    }
    EXPECT_GT(distinct.size(), 40u);
}

TEST(Sampler, TopKOneIsArgmax) {
    for (int seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const auto logits = random_logits(random, 500, seed % 2);
        SamplingOptions options;
        options.temperature = 1;
        options.top_k = 1;
        options.seed = static_cast<std::uint64_t>(seed);
        EXPECT_EQ(Sampler(options).draw(logits, {}, seed), argmax(logits));
        options.logit_bias = {{3, 0.0f}};  // takes the way through the filters
        EXPECT_EQ(Sampler(options).draw(logits, {}, seed), argmax(logits));
    }
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
    std::mt19937 random(1);
    const auto logits = random_logits(random, 40, false);
    SamplingOptions options;
    options.temperature = 1.5;
    const Token favourite = argmax(logits);
    options.logit_bias = {{favourite, -kInf}, {5, -kInf}};
    Sampler sampler(options);
    for (int position = 0; position < 10000; ++position) {
        const Token drawn = sampler.draw(logits, {}, position);
        ASSERT_NE(drawn, favourite);
        ASSERT_NE(drawn, 5);
    }
    options.temperature = 0;
    EXPECT_NE(Sampler(options).draw(logits, {}, 0), favourite);
}

TEST(Sampler, ABanBeatsAnInfiniteLogit) {
    SamplingOptions options;
    options.logit_bias = {{1, -kInf}};
    EXPECT_EQ(Sampler(options).draw(std::vector<float>{0, kInf, 1}, {}, 0), 2);
}

TEST(Sampler, DrawsDependOnTheirArgumentsAlone) {
    std::mt19937 random(2);
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 50; ++i) rows.push_back(random_logits(random, 20 + i, false));
    SamplingOptions options;
    options.temperature = 1;
    options.top_p = 0.9;
    options.repeat_penalty = 1.3;
    const std::vector<Token> history = {1, 2, 3};
    Sampler forwards(options), backwards(options);
    std::vector<Token> a(rows.size()), b(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) a[i] = forwards.draw(rows[i], history, static_cast<std::int64_t>(i));
    for (std::size_t i = rows.size(); i-- > 0;) b[i] = backwards.draw(rows[i], history, static_cast<std::int64_t>(i));
    EXPECT_EQ(a, b);
}

TEST(Sampler, SeedChoiceAndPositionChangeTheDraw) {
    const std::vector<float> flat(1000, 0.0f);
    SamplingOptions options;
    options.temperature = 1;
    const Token first = Sampler(options).draw(flat, {}, 10);
    EXPECT_EQ(first, static_cast<Token>(std::floor(1000 * uniform_at(0, 0, 10))));
    EXPECT_NE(Sampler(options).draw(flat, {}, 11), first);
    options.choice = 1;
    EXPECT_NE(Sampler(options).draw(flat, {}, 10), first);
    options.choice = 0;
    options.seed = 1;
    EXPECT_NE(Sampler(options).draw(flat, {}, 10), first);
}

TEST(Sampler, ExtremeTemperaturesAreSafe) {
    std::mt19937 random(3);
    const auto logits = random_logits(random, 100, false);
    SamplingOptions options;
    for (const double cold : {1e-6, 1e-300, 5e-324}) {
        options.temperature = cold;
        for (int position = 0; position < 50; ++position) {
            EXPECT_EQ(Sampler(options).draw(logits, {}, position), argmax(logits));
        }
    }
    for (const double hot : {100.0, 1e300, std::numeric_limits<double>::infinity()}) {
        options.temperature = hot;
        std::map<Token, int> drawn;
        for (int position = 0; position < 500; ++position) ++drawn[Sampler(options).draw(logits, {}, position)];
        EXPECT_GT(drawn.size(), 80u);
    }
}

TEST(Sampler, OddLogitsAreSafe) {
    const float nan = std::nanf("");
    for (const double temperature : {0.0, 1.0, std::numeric_limits<double>::infinity()}) {
        for (const int top_k : {0, 2}) {
            for (const double top_p : {1.0, 0.5}) {
                SamplingOptions options;
                options.temperature = temperature;
                options.top_k = top_k;
                options.top_p = top_p;
                const auto draw = [&](std::vector<float> logits) { return Sampler(options).draw(logits, {}, 4); };
                EXPECT_EQ(draw({-kInf, -kInf, -kInf}), 0);
                EXPECT_EQ(draw({nan, nan}), 0);
                EXPECT_EQ(draw({nan, -kInf, 1, nan}), 2);
                EXPECT_EQ(draw({5, kInf, nan}), 1);
                EXPECT_EQ(draw({-kInf, -kInf, -kInf, -90, -kInf}), 3);
                EXPECT_EQ(draw({42}), 0);
            }
        }
    }
}

TEST(Sampler, AlwaysKeepsTheMostLikely) {
    const std::vector<float> logits = {1, 3, 2, 3};
    SamplingOptions options;
    options.temperature = 1;
    options.min_p = 2;
    for (int position = 0; position < 50; ++position) EXPECT_EQ(Sampler(options).draw(logits, {}, position), 1);
    options.min_p = 0;
    options.top_p = 0;
    for (int position = 0; position < 50; ++position) EXPECT_EQ(Sampler(options).draw(logits, {}, position), 1);
}

TEST(Sampler, TopKTiesGoToTheSmallerId) {
    const std::vector<float> logits = {0, 2, 1, 1, 1, 2};
    SamplingOptions options;
    options.temperature = 1;
    options.top_k = 3;
    std::map<Token, int> drawn;
    for (int position = 0; position < 500; ++position) ++drawn[Sampler(options).draw(logits, {}, position)];
    EXPECT_EQ(drawn.size(), 3u);
    EXPECT_TRUE(drawn.count(1) && drawn.count(2) && drawn.count(5));
}

TEST(Sampler, PenaltiesSeeTheWindowOnly) {
    const std::vector<float> logits = {2.0f, 1.9f, -1.0f};
    SamplingOptions options;
    options.repeat_penalty = 1.5;
    const std::vector<Token> history = {0, 2, 2};
    const auto draw = [&](int window) {
        options.penalty_window = window;
        return Sampler(options).draw(logits, history, 0);
    };
    EXPECT_EQ(draw(0), 0);
    EXPECT_EQ(draw(2), 0);
    EXPECT_EQ(draw(3), 1);
    EXPECT_EQ(draw(-1), 1);
    EXPECT_EQ(draw(1000), 1);
}

TEST(Sampler, IdsOutsideTheVocabularyAreSkipped) {
    SamplingOptions options;
    options.logit_bias = {{-1, 5.0f}, {100, 5.0f}};
    options.presence_penalty = 1;
    EXPECT_EQ(Sampler(options).draw(std::vector<float>{0, 1, 0}, std::vector<Token>{-7, 3, 1 << 30}, 0), 1);
}

TEST(PlainArgmax, IsRecognised) {
    SamplingOptions options;
    EXPECT_TRUE(is_plain_argmax(options));
    options.temperature = 1;
    EXPECT_FALSE(is_plain_argmax(options));
    options.top_k = 1;
    EXPECT_TRUE(is_plain_argmax(options));
    for (double SamplingOptions::*penalty :
         {&SamplingOptions::repeat_penalty, &SamplingOptions::frequency_penalty, &SamplingOptions::presence_penalty}) {
        SamplingOptions penalised = options;
        penalised.*penalty = 0.5;
        EXPECT_FALSE(is_plain_argmax(penalised));
    }
    options.logit_bias = {{1, 1.0f}};
    EXPECT_FALSE(is_plain_argmax(options));
}

TEST(Argmax, TakesTheSmallestIdAndIgnoresNaN) {
    EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
    EXPECT_EQ(argmax(std::vector<float>{std::nanf(""), -5}), 1);
    EXPECT_EQ(argmax(std::vector<float>{-kInf, -kInf}), 0);
    EXPECT_EQ(argmax(std::vector<float>{std::nanf(""), kInf, 1e30f}), 1);
}

}  // namespace
}  // namespace bastion
