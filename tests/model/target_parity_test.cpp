// The same file, the same tokens: our target and libllama must see the same model.
//
// Differences are counted in standard deviations of a row of logits. With weights in f32 or f16 the two sides differ by
// the order of their sums, the f16 cache and libllama's f16 sums in attention: 0.012 was the most seen, and a wrong
// rope, norm or mask is off by 0.3 and more (the tests named "...Matter"). Quantised weights make both sides round
// activations to 8 bits, and a last-bit difference that moves one rounding grows from layer to layer. How far is
// measured, not guessed: libllama with its other attention is that far from itself, and we must be no further. The
// packed kernels, which round in a way of their own, must be as near to unrounded activations as libllama is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support.h"

namespace bastion::test {
namespace {

constexpr double kFloatTolerance = 0.03;

// The router of tiny-qwen3moe chooses its experts for these tokens with a lead of 2 % of a standard deviation or more:
// no rounding turns a choice round, which would be a different model from there on.
const std::vector<Token> kTokens = random_tokens(40, 320, 284);

std::vector<Token> english() {
    return Llama(smollm_path())
        .tokenize(
            "Speculative decoding drafts several tokens at once and lets the large model check them in a single pass. "
            "When the drafts are right, more than one token is gained; when they are wrong, the text stays the same, "
            "because every token is still the one that the large model itself would have written there.");
}

/// Calls `check(logits, name of the way)` for one pass over all tokens, chunks of 13, and row by row.
template <class Check>
void in_three_ways(TargetRig& ours, const std::vector<Token>& tokens, const Check& check) {
    check(ours.pass(Rows::chain(0, tokens)), "one pass");
    const int count = static_cast<int>(tokens.size());
    for (const int step : {13, 1}) {
        std::vector<Logits> all;
        for (int start = 0; start < count; start += step) {
            const std::vector<Token> chunk(tokens.begin() + start, tokens.begin() + std::min(start + step, count));
            for (Logits& row : ours.pass(Rows::chain(start, chunk))) all.push_back(std::move(row));
        }
        check(all, step == 1 ? "row by row" : "in chunks");
    }
}

void expect_parity(const std::string& path, const std::vector<Token>& tokens, Kernels kernels) {
    const auto expected = Llama(path).decode(tokens);
    TargetRig ours(path, {.kernels = kernels});
    in_three_ways(ours, tokens, [&](const std::vector<Logits>& logits, const std::string& way) {
        ASSERT_EQ(logits.size(), expected.size());
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            expect_close(logits[i], expected[i], kFloatTolerance, path + ", " + way + ", row " + std::to_string(i));
        }
    });
}

struct Spread {
    double median, largest;
};

Spread spread(const std::vector<Logits>& a, const std::vector<Logits>& b) {
    std::vector<double> distances;
    for (std::size_t i = 0; i < b.size(); ++i) distances.push_back(distance(a[i], b[i]));
    std::sort(distances.begin(), distances.end());
    return {distances[distances.size() / 2], distances.back()};
}

/// `logits` may be as far from `flash` as `plain` is, with some room for the luck of single rows.
void expect_within_noise(const std::vector<Logits>& logits, const std::vector<Logits>& flash,
                         const std::vector<Logits>& plain, const std::string& what) {
    ASSERT_EQ(logits.size(), flash.size()) << what;
    const Spread noise = spread(plain, flash), ours = spread(logits, flash);
    ASSERT_LT(noise.largest, 1.0) << what << ": libllama does not agree with itself";
    EXPECT_LE(ours.median, 1.5 * noise.median) << what;
    EXPECT_LE(ours.largest, 2.0 * noise.largest) << what;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        expect_close(logits[i], flash[i], 2.0 * noise.largest, what + ", row " + std::to_string(i));
    }
}

void expect_parity_within_noise(const std::string& path, const std::vector<Token>& tokens, Kernels kernels) {
    const auto flash = Llama(path).decode(tokens), plain = Llama(path, false).decode(tokens);
    TargetRig ours(path, {.kernels = kernels});
    in_three_ways(ours, tokens, [&](const std::vector<Logits>& logits, const std::string& way) {
        expect_within_noise(logits, flash, plain, path + ", " + way);
    });
}

/// How far the median row may be from exact activations, over how far libllama's is.
constexpr double kBlocksOf32 = 1.25;  ///< both scale blocks of 32, ours to a grid that is 6 % coarser
constexpr double kBlocksOf256 = 1.0;  ///< libllama scales blocks of 256
constexpr double kLargestRow = 1.5;   ///< the same for the row that is farthest off: one in 40

/// The packed kernels round activations to a grid of their own. How far rounding moves a model is measured: from the
/// same weights as f32, which have their activations unrounded.
void expect_as_near_to_exact(const std::string& path, const std::vector<Token>& tokens, double most) {
    const auto exact = Llama(GgufEdit(path).convert(GGML_TYPE_F32).write("exact.gguf")).decode(tokens);
    const Spread theirs = spread(Llama(path).decode(tokens), exact);
    ASSERT_LT(theirs.largest, 0.15) << path << ": a wrong model, off by 0.3, would not be noticed";
    TargetRig rig(path, {.kernels = Kernels::packed});
    in_three_ways(rig, tokens, [&](const std::vector<Logits>& logits, const std::string& way) {
        ASSERT_EQ(logits.size(), exact.size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
            expect_close(logits[i], exact[i], kLargestRow * theirs.largest, path + ", " + way);
        }
        EXPECT_LE(spread(logits, exact).median, most * theirs.median) << path << ", " << way;
    });
}

class Parity : public testing::TestWithParam<Kernels> {
 protected:
    void SetUp() override {
        if (!available(GetParam())) GTEST_SKIP() << "this machine has no " << name_of(GetParam()) << " kernels";
    }
};

TEST_P(Parity, EveryArchitectureAgreesWithLibllama) {
    for (const char* name : {"tiny-llama3", "tiny-qwen3", "tiny-qwen3moe", "tiny-llama256", "tiny-llama3-f16"}) {
        expect_parity(model_path(name), kTokens, GetParam());
    }
}

TEST_P(Parity, SmolLM2InFullPrecisionAgreesWithLibllama) {
    const std::string path = GgufEdit(smollm_path()).convert(GGML_TYPE_F32).write("smollm2-f32.gguf");
    expect_parity(path, english(), GetParam());
}

TEST_P(Parity, SmolLM2AgreesWithLibllama) {
    const auto tokens = english();
    ASSERT_GE(tokens.size(), 50u);
    expect_parity_within_noise(smollm_path(), tokens, GetParam());
}

TEST_P(Parity, SmolLM2GreedyStepsAgreeWithLibllama) {
    Llama flash(smollm_path()), plain(smollm_path(), false);
    TargetRig rig(smollm_path(), {.kernels = GetParam()});
    const auto prompt = flash.tokenize("The capital of France is Paris, and the capital of Italy is");
    std::vector<Logits> expected{flash.decode(prompt).back()}, other{plain.decode(prompt).back()};
    std::vector<Logits> ours{rig.prefill(prompt)};
    for (int step = 0; step < 24; ++step) {
        const Token next = argmax(expected.back());
        expected.push_back(flash.decode({next}).front());
        other.push_back(plain.decode({next}).front());
        ours.push_back(rig.prefill({next}, 0, static_cast<int>(prompt.size()) + step));
    }
    expect_within_noise(ours, expected, other, "greedy steps");
}

TEST_P(Parity, EveryWeightTypeAgreesWithLibllama) {
    const auto check = [](const std::string& path, double most) {
        if (GetParam() == Kernels::packed) {  // these have a grid of their own
            expect_as_near_to_exact(path, kTokens, most);
        } else {
            expect_parity_within_noise(path, kTokens, GetParam());
        }
    };
    for (const char* type : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0"}) {
        check(model_path(std::string("tiny-llama3-") + type), kBlocksOf32);
    }
    for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
        const std::string name = std::string("tiny-llama256-") + ggml_type_name(type) + ".gguf";
        check(GgufEdit(model_path("tiny-llama256")).convert(type).write(name), kBlocksOf256);
    }
    expect_parity_within_noise(model_path("tiny-llama3-bf16"), kTokens, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kernels, Parity, testing::Values(Kernels::generic, Kernels::packed, Kernels::library),
                         [](const auto& chosen) { return name_of(chosen.param); });

/// Largest distance between a model and an edited copy of it over a chain of 40 tokens.
double effect_of(const std::string& original, const std::string& edited) {
    const auto tokens = random_tokens(40, 320, 10);
    TargetRig a(original), b(edited);
    const auto x = a.pass(Rows::chain(0, tokens)), y = b.pass(Rows::chain(0, tokens));
    double largest = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) largest = std::max(largest, distance(x[i], y[i]));
    return largest;
}

TEST(ParityPremises, RopeFrequencyFactorsMatter) {
    const std::string path = model_path("tiny-llama3");
    const std::string without = GgufEdit(path).remove_tensor("rope_freqs.weight").write("no-rope-freqs.gguf");
    EXPECT_GT(effect_of(path, without), 0.3);
    expect_parity(without, kTokens, Kernels::generic);
}

TEST(ParityPremises, RopeBaseMatters) {
    for (const auto& [name, key] : std::map<std::string, std::string>{{"tiny-llama3", "llama.rope.freq_base"},
                                                                      {"tiny-qwen3", "qwen3.rope.freq_base"},
                                                                      {"tiny-qwen3moe", "qwen3moe.rope.freq_base"}}) {
        const std::string changed = GgufEdit(model_path(name)).set(key, 1000.0f).write(name + "-base.gguf");
        EXPECT_GT(effect_of(model_path(name), changed), 0.3) << name;
    }
}

TEST(ParityPremises, LinearRopeScalingAgreesWithLibllama) {
    const std::string path = GgufEdit(model_path("tiny-qwen3"))
                                 .set("qwen3.rope.scaling.type", "linear")
                                 .set("qwen3.rope.scaling.factor", 4.0f)
                                 .write("linear.gguf");
    EXPECT_GT(effect_of(model_path("tiny-qwen3"), path), 0.3);
    expect_parity(path, kTokens, Kernels::generic);
}

/// Features must be the inputs of the tapped layers, concatenated in the order of the taps.
void expect_features(const std::string& path, const std::vector<int>& taps, const std::vector<Token>& tokens,
                     Kernels kernels) {
    Llama llama(path);
    for (const int layer : taps) llama.tap(layer);
    llama.decode(tokens);

    const int rows = static_cast<int>(tokens.size());
    TargetRig ours(path, {.kernels = kernels, .taps = taps, .feature_rows = 80});
    const auto places = ours.pool().take(rows);
    Rows chain = Rows::chain(0, tokens);
    chain.feature_rows = places;
    must(ours.pass(chain).size() == tokens.size() ? Status() : Status(runtime_error("rows are missing")));
    const auto features = ours.features(places);

    const std::size_t hidden = ours.config().hidden, width = hidden * taps.size();
    for (std::size_t tap = 0; tap < taps.size(); ++tap) {
        const auto expected = llama.tapped(taps[tap], rows);
        for (int row = 0; row < rows; ++row) {
            const float* mine = &features[row * width + tap * hidden];
            const float* theirs = &expected[row * hidden];
            EXPECT_LE(distance(Logits(mine, mine + hidden), Logits(theirs, theirs + hidden)), kFloatTolerance)
                << path << ": input of layer " << taps[tap] << ", row " << row;
        }
    }
}

TEST(Features, AreTheInputsOfTheTappedLayers) {
    for (const Kernels kernels : {Kernels::generic, Kernels::library}) {
        expect_features(model_path("tiny-llama3"), {1, 2}, random_tokens(30, 320, 12), kernels);
        expect_features(model_path("tiny-qwen3"), {1, 3}, random_tokens(30, 320, 13), kernels);
    }
}

TEST(Features, OfSmolLM2InFullPrecisionAreTheInputsOfTheTappedLayers) {
    const std::string path = GgufEdit(smollm_path()).convert(GGML_TYPE_F32).write("smollm2-f32.gguf");
    expect_features(path, {2, 11, 20, 28}, english(), Kernels::generic);
}

TEST(Features, OfTheLayerCountAreTheLastLayersOutput) {
    // The head of tiny-llama3 applied to the tapped output: logits = W * (norm(x) * weight).
    const auto tokens = random_tokens(12, 320, 15);
    TargetRig ours(model_path("tiny-llama3"), {.taps = {3}, .feature_rows = 12});
    Rows chain = Rows::chain(0, tokens);
    chain.feature_rows = ours.pool().take(12);
    const auto logits = ours.pass(chain);
    const auto features = ours.features(chain.feature_rows);
    const int hidden = ours.config().hidden;
    const auto* norm = static_cast<const float*>(ours.weights().find("output_norm.weight")->data);
    const auto* head = static_cast<const float*>(ours.weights().find("output.weight")->data);
    for (int row = 0; row < 12; ++row) {
        const float* x = &features[row * hidden];
        double squares = 0;
        for (int i = 0; i < hidden; ++i) squares += static_cast<double>(x[i]) * x[i];
        const double scale = 1.0 / std::sqrt(squares / hidden + ours.config().norm_eps);
        Logits expected(ours.config().vocab);
        for (int v = 0; v < ours.config().vocab; ++v) {
            double sum = 0;
            for (int i = 0; i < hidden; ++i) sum += x[i] * scale * norm[i] * head[v * hidden + i];
            expected[v] = static_cast<float>(sum);
        }
        expect_close(logits[row], expected, 1e-4, "row " + std::to_string(row));
    }
}

}  // namespace
}  // namespace bastion::test
