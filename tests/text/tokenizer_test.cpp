#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace bastion {
namespace {

const std::string kDeps = BASTION_DEPS_DIR;
const std::string kLlama3 = kDeps + "/llama.cpp/models/ggml-vocab-llama-bpe.gguf";
const std::string kQwen2 = kDeps + "/llama.cpp/models/ggml-vocab-qwen2.gguf";
const std::string kLlama2 = kDeps + "/llama.cpp/models/ggml-vocab-llama-spm.gguf";
const std::string kSmolLm2 = kDeps + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

const Tokenizer& tokenizer(const std::string& path) {
    static std::map<std::string, Tokenizer> loaded;
    auto found = loaded.find(path);
    if (found == loaded.end()) found = loaded.emplace(path, Tokenizer::load(path).value()).first;
    return found->second;
}

std::string text_of(const Tokenizer& tok, const std::vector<Token>& tokens, bool special = false) {
    std::string text;
    for (const Token token : tokens) text += tok.piece(token, special);
    return text;
}

std::vector<Token> plain(const Tokenizer& tok, std::string_view text) { return tok.encode(text, false, false); }

const std::vector<std::string> kTexts = {
    "",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. It's 12345.678 o'clock, isn't it?",
    "int main(int argc, char** argv) {\n\tfor (int i = 0; i < 10; ++i) {\n\t\tprintf(\"%d\\n\", i);\n\t}\n}\n",
    "def f(x):\r\n    return {'a': [1, 2, 3]}  # comment\r\n",
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 "
    "\xE2\x9C\x8C\xF0\x9F\x8F\xBD",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82 \xE3\x81\x93\xE3\x82\x93 \xEC\x95\x88",
    " ",
    "  ",
    "     leading",
    "trailing     ",
    "a          b",
    "\n",
    "\n\n\n",
    " \n \t \r\n ",
    "\t\t\tx",
    std::string(300, ' '),
    "<|im_start|>user\nhi<|im_end|>",
};

class EveryVocabulary : public testing::TestWithParam<std::string> {
 protected:
    const Tokenizer& tok() const { return tokenizer(GetParam()); }
};

TEST_P(EveryVocabulary, TextSurvivesARoundTrip) {
    for (const std::string& text : kTexts) EXPECT_EQ(text_of(tok(), plain(tok(), text)), text);
}

TEST_P(EveryVocabulary, IdsStayInsideTheVocabulary) {
    for (const std::string& text : kTexts) {
        for (const Token token : plain(tok(), text)) {
            EXPECT_GE(token, 0);
            EXPECT_LT(token, tok().size());
        }
    }
}

TEST_P(EveryVocabulary, AnEmptyTextHasNoTokens) { EXPECT_TRUE(plain(tok(), "").empty()); }

TEST_P(EveryVocabulary, MoreTokensThanGuessedAreAllReturned) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += static_cast<char>('!' + i % 15), text += static_cast<char>('0' + i % 10);
    const auto tokens = plain(tok(), text);
    EXPECT_GT(tokens.size(), text.size() / 3 + 16);
    EXPECT_EQ(text_of(tok(), tokens), text);
}

TEST_P(EveryVocabulary, LongRunsOfOneCharacterAreNoDanger) {
    for (const char c : {'a', '=', ' ', '7', '\n'}) {
        const std::string text(300'000, c);
        EXPECT_EQ(text_of(tok(), plain(tok(), text)), text);
    }
}

TEST_P(EveryVocabulary, EosEndsAndOrdinaryTokensDoNot) {
    EXPECT_TRUE(tok().is_end(tok().eos()));
    for (const Token token : plain(tok(), "An ordinary sentence, with a comma.")) EXPECT_FALSE(tok().is_end(token));
    EXPECT_FALSE(tok().is_end(-1));
    EXPECT_FALSE(tok().is_end(tok().size()));
}

TEST_P(EveryVocabulary, ControlTokensRenderOnlyOnDemand) {
    ASSERT_GE(tok().eos(), 0);
    EXPECT_EQ(tok().piece(tok().eos()), "");
    EXPECT_EQ(tok().piece(tok().eos(), true), tok().eos_text());
    EXPECT_FALSE(tok().eos_text().empty());
    EXPECT_EQ(tok().encode(tok().eos_text(), true, false), std::vector<Token>{tok().eos()});
}

TEST_P(EveryVocabulary, SpecialTextTypedByAUserStaysText) {
    for (const std::string& typed : {tok().eos_text(), tok().bos_text()}) {
        const auto tokens = plain(tok(), typed);
        EXPECT_GT(tokens.size(), 1u);
        EXPECT_EQ(text_of(tok(), tokens), typed);
    }
}

TEST_P(EveryVocabulary, AnIdOutsideHasNoBytes) {
    for (const Token token : {-1, tok().size(), tok().size() + 1000}) EXPECT_EQ(tok().piece(token, true), "");
}

TEST_P(EveryVocabulary, InvalidUtf8IsReadAsReplacementCharacters) {
    for (const std::string& bytes :
         {std::string("a\xFF"
                      "b"),
          std::string("\xF7\xBF\xBF\xBF"), std::string("\xED\xA0\x80"), std::string("ok \xE4\xBD")}) {
        const std::string text = text_of(tok(), plain(tok(), bytes));
        EXPECT_NE(text.find("\xEF\xBF\xBD"), std::string::npos) << testing::PrintToString(text);
    }
    EXPECT_EQ(text_of(tok(), plain(tok(),
                                   "a\xFF"
                                   "b")),
              "a\xEF\xBF\xBD"
              "b");
}

TEST_P(EveryVocabulary, ThreadsMayShareIt) {
    std::vector<std::vector<Token>> results(4);
    std::vector<std::thread> threads;
    for (auto& result : results) threads.emplace_back([&] { result = plain(tok(), kTexts[3]); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : results) EXPECT_EQ(result, plain(tok(), kTexts[3]));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, EveryVocabulary, testing::Values(kLlama3, kQwen2, kSmolLm2),
                         [](const auto& which) -> std::string {
                             return which.param == kLlama3 ? "Llama3" : which.param == kQwen2 ? "Qwen2" : "SmolLm2";
                         });

std::vector<Token> numbers(const std::string& line) {
    std::istringstream in(line);
    std::vector<Token> out;
    for (Token id; in >> id;) out.push_back(id);
    return out;
}

/// The pinned source ships texts (.inp) and the ids that Hugging Face's tokenizers gave for them (.out).
void expect_reference_ids(const std::string& path) {
    std::ifstream texts(path + ".inp"), ids(path + ".out");
    ASSERT_TRUE(texts && ids);
    std::string text, line;
    int compared = 0;
    const auto compare = [&] {
        if (!std::getline(ids, line)) return;
        if (!text.empty()) text.pop_back();  // the newline before the separator
        EXPECT_EQ(plain(tokenizer(path), text), numbers(line)) << testing::PrintToString(text);
        text.clear();
        ++compared;
    };
    for (std::string part; std::getline(texts, part);) {
        if (part == "__ggml_vocab_test__") {
            compare();
        } else {
            text += part + "\n";
        }
    }
    EXPECT_GT(compared, 30);
}

TEST(Tokenizer, GivesTheIdsOfHuggingFacesTokenizers) {
    expect_reference_ids(kLlama3);
    expect_reference_ids(kQwen2);
}

TEST(Tokenizer, ANulByteDoesNotEndTheText) {
    const std::string text("before\0after", 12);
    for (const std::string& path : {kLlama3, kQwen2}) {
        EXPECT_EQ(text_of(tokenizer(path), plain(tokenizer(path), text)), text);
    }
    // SmolLM2's vocabulary has no token for NUL; what follows it must survive all the same.
    EXPECT_TRUE(text_of(tokenizer(kSmolLm2), plain(tokenizer(kSmolLm2), text)).ends_with("after"));
}

TEST(Tokenizer, ChatMarkupIsParsedOnlyWhereAskedFor) {
    const Tokenizer& tok = tokenizer(kSmolLm2);
    const std::string text = "<|im_start|>user\nhi<|im_end|>";
    const auto parsed = tok.encode(text, true, false);
    EXPECT_EQ(parsed.front(), 1);
    EXPECT_EQ(parsed.back(), 2);
    EXPECT_EQ(text_of(tok, parsed, true), text);
    EXPECT_EQ(text_of(tok, parsed, false), "user\nhi");
    for (const Token token : plain(tok, text)) EXPECT_GT(token, 2);
}

TEST(Tokenizer, BosIsAddedOnceAndOnlyWhereTheModelWantsIt) {
    const Tokenizer& llama = tokenizer(kLlama3);
    const Token bos = llama.bos();
    EXPECT_EQ(llama.bos_text(), "<|begin_of_text|>");
    EXPECT_EQ(llama.encode("Hi", true, true), (std::vector<Token>{bos, llama.encode("Hi", true, false).front()}));
    EXPECT_EQ(llama.encode("", true, true), std::vector<Token>{bos});
    EXPECT_EQ(llama.encode("<|begin_of_text|>Hi", true, true), llama.encode("Hi", true, true)) << "not twice";
    const auto typed = llama.encode("<|begin_of_text|>", false, true);
    EXPECT_EQ(typed.front(), bos) << "a typed BOS text is no BOS";
    EXPECT_GT(typed.size(), 2u);
    EXPECT_EQ(tokenizer(kQwen2).encode("Hi", true, true), tokenizer(kQwen2).encode("Hi", true, false));
    EXPECT_EQ(tokenizer(kSmolLm2).encode("Hi", true, true), tokenizer(kSmolLm2).encode("Hi", true, false));
}

TEST(Tokenizer, Llama3EndsTurnsWithSeveralTokens) {
    const Tokenizer& tok = tokenizer(kLlama3);
    for (const char* end : {"<|eot_id|>", "<|end_of_text|>"}) {
        const auto tokens = tok.encode(end, true, false);
        ASSERT_EQ(tokens.size(), 1u) << end;
        EXPECT_TRUE(tok.is_end(tokens[0])) << end;
    }
    EXPECT_FALSE(tok.is_end(tok.bos()));
}

TEST(Tokenizer, SentencePieceVocabulariesSpellUnknownBytes) {
    const Tokenizer& tok = tokenizer(kLlama2);
    const std::string text = "Hello \xF0\x9F\xA7\xBF\t" + std::string(1, '\0') + "x";
    EXPECT_EQ(text_of(tok, plain(tok, text)), " " + text) << "its tokens carry a leading space";
    EXPECT_EQ(tok.encode("Hi", true, true).front(), 1);
}

}  // namespace
}  // namespace bastion
