// Malformed vocabularies: a tiny sound one, changed in one place.
#include "text/vocabulary.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/ggml_ptr.h"
#include "text/tokenizer.h"

namespace bastion {
namespace {

using Edit = std::function<void(gguf_context*)>;

void set_texts(gguf_context* gguf, const char* key, const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    gguf_set_arr_str(gguf, key, pointers.data(), pointers.size());
}

const std::vector<std::string> kTinyTokens = {"<s>", "</s>", "a", "b", "c", "d", "e", "f", "g", "h", "i", "ab", "abc"};

/// Writes the tiny vocabulary with one change and loads it.
Result<Tokenizer> load_with(const Edit& edit) {
    const gguf_context_ptr gguf(gguf_init_empty());
    gguf_set_val_str(gguf.get(), "general.architecture", "llama");
    gguf_set_val_str(gguf.get(), "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(gguf.get(), "tokenizer.ggml.pre", "gpt-2");
    set_texts(gguf.get(), "tokenizer.ggml.tokens", kTinyTokens);
    std::vector<std::int32_t> types(kTinyTokens.size(), 1);
    types[0] = types[1] = 3;
    gguf_set_arr_data(gguf.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    set_texts(gguf.get(), "tokenizer.ggml.merges", {"a b", "ab c"});
    gguf_set_val_u32(gguf.get(), "tokenizer.ggml.bos_token_id", 0);
    gguf_set_val_u32(gguf.get(), "tokenizer.ggml.eos_token_id", 1);
    edit(gguf.get());
    const std::string path = testing::TempDir() + "bastion_vocabulary.gguf";
    EXPECT_TRUE(gguf_write_to_file(gguf.get(), path.c_str(), true));
    auto result = Tokenizer::load(path);
    std::filesystem::remove(path);
    return result;
}

void expect_refused(const std::string& key, const std::string& why, const Edit& edit) {
    SCOPED_TRACE(key + ": " + why);
    const auto result = load_with(edit);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
    const std::string& message = result.error().message;
    EXPECT_NE(message.find("bastion_vocabulary.gguf: "), std::string::npos) << message;
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(VocabularyFile, TheUnchangedTinyOneLoads) {
    const auto tok = load_with([](gguf_context*) {});
    ASSERT_TRUE(tok.ok()) << tok.error().message;
    EXPECT_EQ(tok->encode("abcd", false, false), (std::vector<Token>{12, 5}));
    EXPECT_EQ(tok->bos(), 0);
    EXPECT_EQ(tok->eos_text(), "</s>");
}

TEST(VocabularyFile, WithoutBosThereIsNone) {
    const auto tok = load_with([](gguf_context* g) {
        gguf_remove_key(g, "tokenizer.ggml.bos_token_id");
        gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", true);
    });
    ASSERT_TRUE(tok.ok()) << tok.error().message;
    EXPECT_EQ(tok->bos(), -1);
    EXPECT_EQ(tok->bos_text(), "");
    EXPECT_EQ(tok->encode("ab", true, true), (std::vector<Token>{11}));
}

TEST(VocabularyFile, MissingKeysAreNamed) {
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                            "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id"}) {
        expect_refused(key, "is missing", [&](gguf_context* g) { gguf_remove_key(g, key); });
    }
}

TEST(VocabularyFile, UnknownTokenizersAreRefused) {
    const auto set = [](const char* key, const char* value) {
        return [=](gguf_context* g) { gguf_set_val_str(g, key, value); };
    };
    expect_refused("tokenizer.ggml.model", "expected a vocabulary", set("tokenizer.ggml.model", "no_vocab"));
    expect_refused("tokenizer.ggml.model", "'bert', expected", set("tokenizer.ggml.model", "bert"));
    expect_refused("tokenizer.ggml.pre", "'nonsense'", set("tokenizer.ggml.pre", "nonsense"));
    expect_refused("tokenizer.ggml.pre", "'deepseek-llm'", set("tokenizer.ggml.pre", "deepseek-llm"));
    expect_refused("tokenizer.ggml.tokens", "lacks <0x00>", set("tokenizer.ggml.model", "llama"));
}

TEST(VocabularyFile, WrongTypesAreRefused) {
    for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre"}) {
        expect_refused(key, "expected a string", [&](gguf_context* g) { gguf_set_val_u32(g, key, 1); });
    }
    for (const char* key :
         {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
        expect_refused(key, "is no array", [&](gguf_context* g) { gguf_set_val_u32(g, key, 1); });
        expect_refused(key, "is an array of u8", [&](gguf_context* g) {
            const std::uint8_t bytes[64] = {};
            gguf_set_arr_data(g, key, GGUF_TYPE_UINT8, bytes, 64);
        });
    }
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
        expect_refused(key, "expected u32", [&](gguf_context* g) { gguf_set_val_str(g, key, "1"); });
    }
    expect_refused("tokenizer.ggml.add_bos_token", "expected bool",
                   [](gguf_context* g) { gguf_set_val_u32(g, "tokenizer.ggml.add_bos_token", 1); });
}

TEST(VocabularyFile, ShortArraysAreRefused) {
    expect_refused("tokenizer.ggml.tokens", "is empty",
                   [](gguf_context* g) { gguf_set_arr_str(g, "tokenizer.ggml.tokens", nullptr, 0); });
    expect_refused("tokenizer.ggml.token_type", "has 3 entries", [](gguf_context* g) {
        const std::int32_t types[3] = {1, 1, 1};
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, 3);
    });
    expect_refused("tokenizer.ggml.scores", "has 2 entries", [](gguf_context* g) {
        const float scores[2] = {0, 0};
        gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, 2);
    });
}

TEST(VocabularyFile, IdsOutsideTheVocabularyAreRefused) {
    const auto count = static_cast<std::uint32_t>(kTinyTokens.size());
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
        for (const std::uint32_t id : {count, 0xFFFFFFFFu}) {
            expect_refused(key, "is " + std::to_string(id), [&](gguf_context* g) { gguf_set_val_u32(g, key, id); });
        }
        EXPECT_TRUE(load_with([&](gguf_context* g) { gguf_set_val_u32(g, key, count - 1); }).ok()) << key;
    }
}

TEST(VocabularyFile, RepeatedOrOverlongTextsAreRefused) {
    const auto with_token = [](const std::string& text) {
        return [text](gguf_context* g) {
            auto tokens = kTinyTokens;
            tokens[5] = text;
            set_texts(g, "tokenizer.ggml.tokens", tokens);
        };
    };
    expect_refused("tokenizer.ggml.tokens", "repeats 'ab' at index 11", with_token("ab"));
    expect_refused("tokenizer.ggml.tokens", "5000 bytes at index 5", with_token(std::string(5000, 'x')));
    EXPECT_TRUE(load_with(with_token("")).ok()) << "one empty text is renamed";
    expect_refused("tokenizer.ggml.tokens", "repeats '[EMPTY_7]'", [](gguf_context* g) {
        auto tokens = kTinyTokens;
        tokens[6] = "[EMPTY_7]";
        tokens[7] = "";
        set_texts(g, "tokenizer.ggml.tokens", tokens);
    });
}

TEST(VocabularyFile, MalformedMergesAreRefused) {
    for (const char* merge : {"", "a", "ab ", " "}) {
        expect_refused("tokenizer.ggml.merges", "at index 1", [&](gguf_context* g) {
            set_texts(g, "tokenizer.ggml.merges", {"a b", merge});
        });
    }
}

TEST(VocabularyFile, AByteTokenMustNameItsByte) {
    expect_refused("tokenizer.ggml.token_type", "calls token 4 a byte", [](gguf_context* g) {
        std::vector<std::int32_t> types(kTinyTokens.size(), 1);
        types[4] = 6;
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    });
}

TEST(VocabularyFile, WhatLibllamaRefusesComesWithItsReason) {
    const auto result = load_with([](gguf_context* g) { gguf_set_val_str(g, "general.architecture", "nonsense"); });
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("unknown model architecture: 'nonsense'"), std::string::npos)
        << result.error().message;
}

TEST(VocabularyFile, AMissingOrForeignFileIsRefused) {
    const std::string missing = testing::TempDir() + "bastion_no_such_file.gguf";
    const auto result = Tokenizer::load(missing);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(missing), std::string::npos);
    EXPECT_FALSE(Tokenizer::load(std::string(BASTION_SOURCE_DIR) + "/CMakeLists.txt").ok());
}

TEST(VocabularyFile, LaterPartsOfASplitFileAreNotOpened) {
    const auto tok = load_with([](gguf_context* g) {
        gguf_set_val_u16(g, "split.no", 0);
        gguf_set_val_u16(g, "split.count", 3);
        gguf_set_val_i32(g, "split.tensors.count", 99);
    });
    ASSERT_TRUE(tok.ok()) << tok.error().message;
    EXPECT_EQ(tok->size(), static_cast<int>(kTinyTokens.size()));
}

}  // namespace
}  // namespace bastion
