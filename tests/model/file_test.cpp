// Files that say something we do not implement or that do not fit: refused by name.
#include <gtest/gtest.h>

#include <limits>

#include "attempt.h"

namespace bastion::test {
namespace {

TEST(File, UnchangedFilesOpen) {
    for (const FilePair& pair : tiny_pairs()) {
        const Outcome outcome = pair.with(pair.subject());
        EXPECT_EQ(outcome.kind, Outcome::opened) << pair.subject() << ": " << outcome.message;
        // Also after a round trip through the editor of these tests, or the cases below would show nothing.
        const Outcome again = pair.with(GgufEdit(pair.subject()).write("same.gguf"));
        EXPECT_EQ(again.kind, Outcome::opened) << pair.subject() << ": " << again.message;
    }
    const Outcome embedded = attempt(smollm_path(), smollm_drafter_path());
    EXPECT_EQ(embedded.kind, Outcome::opened) << embedded.message;
}

TEST(File, EveryRequiredKeyIsMissedByName) {
    const std::vector<std::string> common{"block_count",         "context_length",
                                          "embedding_length",    "attention.head_count",
                                          "feed_forward_length", "attention.layer_norm_rms_epsilon"};
    const std::vector<std::string> of_drafters{"attention.head_count_kv", "attention.key_length", "rope.freq_base",
                                               "block_size", "target_layers"};
    for (const FilePair& pair : tiny_pairs()) {
        const std::string arch = must(must(GgufFile::open(pair.subject())).text("general.architecture"));
        std::vector<std::string> keys{"general.architecture", "tokenizer.ggml.tokens"};
        for (const std::string& key : common) {
            if (arch == "qwen3moe" && key == "feed_forward_length") continue;  // of dense layers, which it has none of
            keys.push_back(arch + "." + key);
        }
        if (*pair.drafter) {
            keys.push_back("tokenizer.ggml.mask_token_id");
            for (const std::string& key : of_drafters) keys.push_back(arch + "." + key);
        }
        if (arch == "qwen3moe") {
            for (const char* key : {"expert_count", "expert_used_count", "expert_feed_forward_length"}) {
                keys.push_back(arch + "." + key);
            }
        }
        for (const std::string& key : keys) {
            const std::string path = GgufEdit(pair.subject()).remove_key(key).write("missing-key.gguf");
            expect_refused(pair.with(path), path, key, pair.subject() + " without " + key);
        }
    }
}

TEST(File, EveryTensorIsMissedByName) {
    for (const FilePair& pair : tiny_pairs()) {
        for (const std::string& name : GgufEdit(pair.subject()).tensors()) {
            const std::string path = GgufEdit(pair.subject()).remove_tensor(name).write("missing-tensor.gguf");
            const Outcome outcome = pair.with(path);
            if (name == "rope_freqs.weight" || (name == "output.weight" && !*pair.drafter)) {
                EXPECT_EQ(outcome.kind, Outcome::opened) << name << " is optional: " << outcome.message;
                continue;
            }
            // Without d2t the short head no longer fits the vocabulary: then the head is named.
            expect_refused(outcome, path, name == "d2t" ? "output.weight" : name, pair.subject() + " without " + name);
        }
    }
}

TEST(File, UnknownKeysAreRefusedByName) {
    for (const FilePair& pair : tiny_pairs()) {
        const std::string arch = must(must(GgufFile::open(pair.subject())).text("general.architecture"));
        for (const char* key : {"logit_scale", "final_logit_softcapping", "attn_logit_softcapping", "embedding_scale",
                                "attention.scale", "attention.value_scale", "residual_scale", "anything_else"}) {
            const std::string name = arch + "." + key;
            const std::string path = GgufEdit(pair.subject()).set(name, 2.0f).write("unknown-key.gguf");
            expect_refused(pair.with(path), path, name, name);
        }
        const std::string yarn = GgufEdit(pair.subject())
                                     .set(arch + ".rope.scaling.type", "yarn")
                                     .set(arch + ".rope.scaling.factor", 4.0f)
                                     .write("yarn.gguf");
        expect_refused(pair.with(yarn), yarn, arch + ".rope.scaling.type", "yarn");
        const std::string sections =
            GgufEdit(pair.subject()).set(arch + ".rope.dimension_sections", {8, 8, 0, 0}).write("sections.gguf");
        expect_refused(pair.with(sections), sections, arch + ".rope.dimension_sections", "rope sections");
        const std::string causal =
            GgufEdit(pair.subject()).set(arch + ".attention.causal", *pair.drafter != 0).write("causal.gguf");
        expect_refused(pair.with(causal), causal, arch + ".attention.causal", "the other causality");
    }
}

TEST(File, DrafterWithAnotherActivationIsRefused) {
    const std::string path =
        GgufEdit(model_path("tiny-llama3-dflash")).set("dflash.hidden_act", "gelu_pytorch_tanh").write("gelu.gguf");
    expect_refused(attempt(model_path("tiny-llama3"), path), path, "dflash.hidden_act", "gelu");
}

TEST(File, UnknownTensorsAreRefusedByName) {
    for (const FilePair& pair : tiny_pairs()) {
        for (const char* name :
             {"blk.0.attn_q.bias", "blk.0.attn_sinks.weight", "output.scale", "extra.weight", "blk.0.attn_conv_base",
              "markov_w1.weight", "selector_hidden.weight", "blk.99.attn_norm.weight"}) {
            const std::string path = GgufEdit(pair.subject()).add_vector(name, 32).write("extra-tensor.gguf");
            expect_refused(pair.with(path), path, name, name);
        }
    }
}

TEST(File, UnknownArchitectureIsRefusedByName) {
    const std::string path =
        GgufEdit(model_path("tiny-llama3")).set("general.architecture", "gemma4").write("gemma4.gguf");
    expect_refused(attempt(path), path, "gemma4", "another architecture");
    const std::string drafter = model_path("tiny-llama3-dflash");
    expect_refused(attempt(drafter), drafter, "drafter", "a drafter as target");
    const std::string target = model_path("tiny-llama3");
    expect_refused(attempt(target, target), target, "llama", "a target as drafter");
}

TEST(File, SizesThatDoNotFitAreRefusedByName) {
    struct Change {
        const char* key;
        std::uint32_t value;
    };
    for (const Change& change : {Change{"llama.attention.head_count", 0},
                                 {"llama.attention.head_count", 3},
                                 {"llama.attention.head_count_kv", 0},
                                 {"llama.attention.head_count_kv", 3},
                                 {"llama.block_count", 0},
                                 {"llama.block_count", 4000000000u},
                                 {"llama.embedding_length", 0},
                                 {"llama.embedding_length", 2147483648u},
                                 {"llama.rope.dimension_count", 16},
                                 {"llama.vocab_size", 319},
                                 {"llama.feed_forward_length", 0},
                                 {"llama.context_length", 0}}) {
        const std::string path = GgufEdit(model_path("tiny-llama3")).set(change.key, change.value).write("size.gguf");
        const std::string what = std::string(change.key) + " = " + std::to_string(change.value);
        expect_refused(attempt(path), path, change.key, what);
    }
    // A smaller layer count leaves tensors over, a larger one misses some; another width fits no tensor.
    const std::string fewer = GgufEdit(model_path("tiny-llama3")).set("llama.block_count", 2u).write("fewer.gguf");
    expect_refused(attempt(fewer), fewer, "blk.2.", "one layer fewer");
    const std::string more = GgufEdit(model_path("tiny-llama3")).set("llama.block_count", 4u).write("more.gguf");
    expect_refused(attempt(more), more, "blk.3.", "one layer more");
    const std::string wide = GgufEdit(model_path("tiny-qwen3")).set("qwen3.embedding_length", 96u).write("wide.gguf");
    expect_refused(attempt(wide), wide, "token_embd.weight", "another width");
    for (const char* key : {"qwen3moe.expert_used_count", "qwen3moe.expert_count"}) {
        const std::string experts = GgufEdit(model_path("tiny-qwen3moe")).set(key, 0u).write("experts.gguf");
        expect_refused(attempt(experts), experts, key, key);
    }
    const std::string many =
        GgufEdit(model_path("tiny-qwen3moe")).set("qwen3moe.expert_used_count", 9u).write("many.gguf");
    expect_refused(attempt(many), many, "qwen3moe.expert_used_count", "more experts used than there are");
}

TEST(File, ValuesOfTheWrongTypeAreRefusedByName) {
    for (const char* key : {"llama.block_count", "llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon",
                            "tokenizer.ggml.tokens"}) {
        const std::string path =
            GgufEdit(model_path("tiny-llama3")).remove_key(key).set(key, "four").write("type.gguf");
        expect_refused(attempt(path), path, key, std::string(key) + " as text");
    }
    for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
        for (const char* key : {"llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"}) {
            const std::string path = GgufEdit(model_path("tiny-llama3")).set(key, value).write("value.gguf");
            expect_refused(attempt(path), path, key, std::string(key) + " = " + std::to_string(value));
        }
    }
}

class Drafters : public testing::Test {
 protected:
    void expect_drafter_refused(GgufEdit& edit, const std::string& named, const std::string& what) {
        const std::string path = edit.write("drafter.gguf");
        expect_refused(attempt(model_path("tiny-llama3"), path), path, named, what);
    }
    static GgufEdit plain() { return GgufEdit(model_path("tiny-llama3-dflash")); }
};

TEST_F(Drafters, OfAnotherVocabularyAreRefusedWithTheFirstDifference) {
    const std::string path = plain().set_token(300, "other").set_token(310, "another").write("drafter.gguf");
    const Outcome outcome = attempt(model_path("tiny-llama3"), path);
    expect_refused(outcome, path, "300", "one different token");
    EXPECT_NE(outcome.message.find("other"), std::string::npos) << outcome.message;
    EXPECT_EQ(outcome.message.find("310"), std::string::npos) << outcome.message;
}

TEST_F(Drafters, OfAnotherWidthAreRefused) {
    const std::string drafter = model_path("tiny-llama3-dflash");
    expect_refused(attempt(model_path("tiny-qwen3"), drafter), drafter, "embedding_length", "drafter of a wider model");
}

TEST_F(Drafters, WithImpossibleBlocksAreRefused) {
    for (const std::uint32_t size : {0u, 1u, 100000u, 4294967295u}) {
        GgufEdit edit = plain();
        expect_drafter_refused(edit.set("dflash.block_size", size), "dflash.block_size",
                               "block size " + std::to_string(size));
    }
}

TEST_F(Drafters, WithTapsOutsideTheTargetAreRefused) {
    for (const std::vector<std::int32_t>& taps :
         {std::vector<std::int32_t>{1, 2, 4}, {-1, 1, 2}, {1, 2, 2147483647}, {1, 1, 2}, {}, {1, 2}}) {
        GgufEdit edit = plain();
        // Two taps instead of three are fine by themselves: the fusion matrix then has the wrong width.
        expect_drafter_refused(edit.set("dflash.target_layers", taps), taps.size() == 2 ? "fc.weight" : "target_layers",
                               "taps " + testing::PrintToString(taps));
    }
}

TEST_F(Drafters, WithAMaskOutsideTheVocabularyAreRefused) {
    for (const std::uint32_t mask : {320u, 4294967295u}) {
        GgufEdit edit = plain();
        expect_drafter_refused(edit.set("tokenizer.ggml.mask_token_id", mask), "tokenizer.ggml.mask_token_id",
                               "mask " + std::to_string(mask));
    }
}

TEST_F(Drafters, WithABadReducedVocabularyAreRefused) {
    for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{320}, std::int64_t{1} << 40}) {
        GgufEdit edit(model_path("tiny-llama3-dflash-d2t"));
        expect_drafter_refused(edit.set_i64("d2t", 50, id), "d2t", "id " + std::to_string(id));
    }
    const GgufFile file = must(GgufFile::open(model_path("tiny-llama3-dflash-d2t")));
    const auto* ids = static_cast<const std::int64_t*>(file.find("d2t")->data);
    GgufEdit edit(model_path("tiny-llama3-dflash-d2t"));
    expect_drafter_refused(edit.set_i64("d2t", 51, ids[50]), "d2t", "an id twice");
}

TEST_F(Drafters, WithAWindowThatIsNotSaidWhereAreRefused) {
    GgufEdit without_pattern(model_path("tiny-llama3-dflash-window"));
    expect_drafter_refused(without_pattern.remove_key("dflash.attention.sliding_window_pattern"),
                           "dflash.attention.sliding_window_pattern", "window without pattern");
    GgufEdit without_window(model_path("tiny-llama3-dflash-window"));
    expect_drafter_refused(without_window.remove_key("dflash.attention.sliding_window"),
                           "dflash.attention.sliding_window", "pattern without window");
}

}  // namespace
}  // namespace bastion::test
