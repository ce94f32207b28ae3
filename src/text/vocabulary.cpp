#include "text/vocabulary.h"

#include <gguf.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_set>

#include "base/types.h"

namespace bastion {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kMerges = "tokenizer.ggml.merges";

/// Value of a byte token in kTypes ("<0x41>").
constexpr std::int32_t kByteType = 6;

/// libllama expands a byte-level token of n unmapped characters to about n^2 bytes; the longest real tokens (runs of
/// spaces) have a few hundred bytes.
constexpr std::size_t kMaxTokenBytes = 4096;

/// Pre-tokenizers that split text without std::regex loops. libstdc++ recurses once per character inside such a loop,
/// so with the others a long run of letters or punctuation in a prompt overflows the stack.
constexpr std::array kPreTokenizers = {
    std::string_view("llama-bpe"),
    std::string_view("llama3"),
    std::string_view("llama-v3"),
    std::string_view("qwen2"),
    std::string_view("qwen35"),
    std::string_view("smollm"),
    std::string_view("deepseek-r1-qwen"),
    std::string_view("gpt-2"),
    std::string_view("phi-2"),
    std::string_view("falcon3"),
    std::string_view("pixtral"),
    std::string_view("lfm2"),
    std::string_view("smaug-bpe"),
    std::string_view("dbrx"),
    std::string_view("starcoder"),
    std::string_view("refact"),
    std::string_view("command-r"),
    std::string_view("codeshell"),
    std::string_view("exaone"),
    std::string_view("exaone4"),
    std::string_view("minerva-7b"),
    std::string_view("mellum"),
    std::string_view("mellum2"),
    std::string_view("mpt"),
    std::string_view("olmo"),
    std::string_view("stablelm2"),
    std::string_view("megrez"),
    std::string_view("hunyuan"),
    std::string_view("glm4"),
    std::string_view("chatglm-bpe"),
    std::string_view("granite-docling"),
    std::string_view("trillion"),
};

/// The header with the file's name, for messages.
struct Header {
    const gguf_context* gguf;
    const std::string& path;

    std::int64_t find(const char* key) const { return gguf_find_key(gguf, key); }

    Error refuse(const char* key, const std::string& what) const { return bad_input(path + ": " + key + " " + what); }
};

std::string quoted(std::string_view text) {
    constexpr std::size_t kLongest = 40;
    std::string out = "'";
    for (const char c : text.substr(0, kLongest)) {
        out += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
    }
    return out + (text.size() > kLongest ? "...'" : "'");
}

Result<std::string> text_of(const Header& header, const char* key) {
    const std::int64_t id = header.find(key);
    if (id < 0) return header.refuse(key, "is missing");
    const gguf_type type = gguf_get_kv_type(header.gguf, id);
    if (type != GGUF_TYPE_STRING) {
        return header.refuse(key, std::string("has type ") + gguf_type_name(type) + ", expected a string");
    }
    return std::string(gguf_get_val_str(header.gguf, id));
}

/// Length of the array `key`, whose elements must have one of two types.
Result<std::size_t> array_length(const Header& header, const char* key, gguf_type type, gguf_type other) {
    const std::int64_t id = header.find(key);
    if (id < 0) return header.refuse(key, "is missing");
    if (gguf_get_kv_type(header.gguf, id) != GGUF_TYPE_ARRAY) {
        return header.refuse(key, std::string("is no array, expected an array of ") + gguf_type_name(type));
    }
    const gguf_type found = gguf_get_arr_type(header.gguf, id);
    if (found != type && found != other) {
        return header.refuse(
            key, std::string("is an array of ") + gguf_type_name(found) + ", expected " + gguf_type_name(type));
    }
    return gguf_get_arr_n(header.gguf, id);
}

Result<std::size_t> array_length(const Header& header, const char* key, gguf_type type) {
    return array_length(header, key, type, type);
}

/// The texts must be distinct: libllama maps text to id and asserts that none is lost. It reads them as C strings and
/// renames empty ones, so that is how they are compared here. `texts` receives them.
Status check_tokens(const Header& header, std::unordered_set<std::string>& texts) {
    BASTION_ASSIGN(const std::size_t count, array_length(header, kTokens, GGUF_TYPE_STRING));
    if (count == 0) return header.refuse(kTokens, "is empty, expected a vocabulary");
    if (count > static_cast<std::size_t>(std::numeric_limits<Token>::max())) {
        return header.refuse(kTokens, "has " + std::to_string(count) + " entries, more than an id can number");
    }
    const std::int64_t id = header.find(kTokens);
    texts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        std::string text = gguf_get_arr_str(header.gguf, id, i);
        if (text.size() > kMaxTokenBytes) {
            return header.refuse(kTokens, "has a text of " + std::to_string(text.size()) + " bytes at index " +
                                              std::to_string(i) + ", expected at most " +
                                              std::to_string(kMaxTokenBytes));
        }
        if (text.empty()) text = "[EMPTY_" + std::to_string(i) + "]";
        if (const auto [at, added] = texts.insert(std::move(text)); !added) {
            return header.refuse(
                kTokens, "repeats " + quoted(*at) + " at index " + std::to_string(i) + ", expected distinct texts");
        }
    }
    return {};
}

/// "<0x" and two hexadecimal digits and ">", as libllama cuts the digits out of the text.
bool names_a_byte(std::string_view text) {
    const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    return text.size() == 6 && text.starts_with("<0x") && text.back() == '>' && is_hex(text[3]) && is_hex(text[4]);
}

Status check_types_and_scores(const Header& header) {
    const std::size_t count = gguf_get_arr_n(header.gguf, header.find(kTokens));
    const auto check_length = [&](const char* key, std::size_t length) -> Status {
        if (length >= count) return {};
        return header.refuse(key, "has " + std::to_string(length) + " entries, expected one for each of the " +
                                      std::to_string(count) + " tokens");
    };
    if (has_key(header.gguf, kScores)) {
        BASTION_ASSIGN(const std::size_t length, array_length(header, kScores, GGUF_TYPE_FLOAT32, GGUF_TYPE_INT32));
        BASTION_CHECK(check_length(kScores, length));
    }
    if (!has_key(header.gguf, kTypes)) return {};
    BASTION_ASSIGN(const std::size_t length, array_length(header, kTypes, GGUF_TYPE_INT32));
    BASTION_CHECK(check_length(kTypes, length));
    const auto* types = static_cast<const std::int32_t*>(gguf_get_arr_data(header.gguf, header.find(kTypes)));
    const std::int64_t tokens = header.find(kTokens);
    for (std::size_t i = 0; i < count; ++i) {
        const char* text = gguf_get_arr_str(header.gguf, tokens, i);
        if (types[i] == kByteType && !names_a_byte(text)) {
            return header.refuse(kTypes, "calls token " + std::to_string(i) + " a byte, but its text is " +
                                             quoted(text) + ", expected the form <0x41>");
        }
    }
    return {};
}

Status check_merges(const Header& header) {
    BASTION_ASSIGN(const std::size_t count, array_length(header, kMerges, GGUF_TYPE_STRING));
    if (count > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        return header.refuse(kMerges, "has " + std::to_string(count) + " entries, more than can be ranked");
    }
    const std::int64_t id = header.find(kMerges);
    for (std::size_t i = 0; i < count; ++i) {
        const std::string_view merge = gguf_get_arr_str(header.gguf, id, i);
        const std::size_t space = merge.find(' ', 1);
        if (space == std::string_view::npos || space + 1 == merge.size()) {
            return header.refuse(kMerges, "has " + quoted(merge) + " at index " + std::to_string(i) +
                                              ", expected two texts and a space between them");
        }
    }
    return {};
}

/// The ids the product relies on. libllama ignores an id outside the vocabulary and goes on with a default.
Status check_id(const Header& header, const char* key, bool required) {
    const std::int64_t id = header.find(key);
    if (id < 0) return required ? Status(header.refuse(key, "is missing")) : Status();
    const gguf_type type = gguf_get_kv_type(header.gguf, id);
    if (type != GGUF_TYPE_UINT32) {
        return header.refuse(key, std::string("has type ") + gguf_type_name(type) + ", expected u32");
    }
    const std::size_t count = gguf_get_arr_n(header.gguf, header.find(kTokens));
    const std::uint32_t value = gguf_get_val_u32(header.gguf, id);
    if (value >= count) {
        return header.refuse(
            key, "is " + std::to_string(value) + ", expected less than the number of tokens, " + std::to_string(count));
    }
    return {};
}

Status check_flag(const Header& header, const char* key) {
    const std::int64_t id = header.find(key);
    if (id < 0) return {};
    const gguf_type type = gguf_get_kv_type(header.gguf, id);
    if (type == GGUF_TYPE_BOOL) return {};
    return header.refuse(key, std::string("has type ") + gguf_type_name(type) + ", expected bool");
}

Status check_bpe(const Header& header) {
    BASTION_ASSIGN(const std::string pre, text_of(header, kPre));
    if (std::find(kPreTokenizers.begin(), kPreTokenizers.end(), pre) == kPreTokenizers.end()) {
        return header.refuse(kPre, "is " + quoted(pre) + ", which is not supported, expected llama-bpe, qwen2, " +
                                       "smollm, gpt-2 or one that splits like them");
    }
    BASTION_CHECK(check_merges(header));
    // Without this key libllama would take id 11 for both: a comma would end the answer.
    return check_id(header, "tokenizer.ggml.eos_token_id", true);
}

/// SentencePiece spells what no token covers in byte tokens, and throws where one is missing.
Status check_byte_tokens(const Header& header, const std::unordered_set<std::string>& texts) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
        const std::string name = std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">";
        if (!texts.contains(name)) {
            return header.refuse(kTokens, "lacks " + name + ", expected a token for every byte");
        }
    }
    return {};
}

}  // namespace

bool has_key(const gguf_context* gguf, const char* key) { return gguf_find_key(gguf, key) >= 0; }

Status check_vocabulary(const gguf_context* gguf, const std::string& path) {
    const Header header{gguf, path};
    BASTION_ASSIGN(const std::string model, text_of(header, kModel));
    if (model == "no_vocab" || model == "none") {
        return header.refuse(kModel, "is " + quoted(model) + ", expected a vocabulary");
    }
    if (model != "gpt2" && model != "llama") {
        return header.refuse(kModel, "is " + quoted(model) + ", expected gpt2 or llama");
    }
    std::unordered_set<std::string> texts;
    BASTION_CHECK(check_tokens(header, texts));
    BASTION_CHECK(check_types_and_scores(header));
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
        BASTION_CHECK(check_id(header, key, false));
    }
    for (const char* key :
         {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix"}) {
        BASTION_CHECK(check_flag(header, key));
    }
    return model == "gpt2" ? check_bpe(header) : check_byte_tokens(header, texts);
}

}  // namespace bastion
