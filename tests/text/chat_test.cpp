#include "text/chat.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/ggml_ptr.h"

namespace bastion {
namespace {

using nlohmann::json;

const std::string kDeps = BASTION_DEPS_DIR;
const std::string kSmolLm2 = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
const std::string kTemplates = "llama.cpp/models/templates/";
const std::string kLlama32 = kTemplates + "meta-llama-Llama-3.2-3B-Instruct.jinja";
const std::string kQwen3 = kTemplates + "Qwen-Qwen3-0.6B.jinja";
const std::string kGemma2 = kTemplates + "google-gemma-2-2b-it.jinja";

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// tokenizer.chat_template of a GGUF, or the file itself.
std::string template_source(const std::string& name) {
    const std::string path = kDeps + "/" + name;
    if (!name.ends_with(".gguf")) return read_file(path);
    const gguf_context_ptr header(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
    if (!header) {
        ADD_FAILURE() << path;
        return {};
    }
    return gguf_get_val_str(header.get(), gguf_find_key(header.get(), "tokenizer.chat_template"));
}

ChatTemplate compiled(const std::string& name, const std::string& bos = "<s>", const std::string& eos = "</s>") {
    return ChatTemplate::compile(template_source(name), bos, eos).value();
}

std::vector<ChatMessage> user(const std::string& content) { return {{"user", content}}; }

std::string rendered(const std::string& source, const std::vector<ChatMessage>& messages = user("hi")) {
    return ChatTemplate::compile(source, "<s>", "</s>").value().render(messages, true).value();
}

/// Noon of a day "2025-03-09" in the local time zone, so that strftime shows that day everywhere.
std::time_t noon_of(const std::string& day) {
    std::tm tm{};
    std::istringstream in(day + " 12:00:00");
    in >> std::get_time(&tm, "%Y-%m-%d %H:%M:%S");
    tm.tm_isdst = -1;
    return std::mktime(&tm);
}

TEST(ChatGolden, EveryTemplateRendersAsPythonJinjaDoes) {
    const json golden = json::parse(read_file(std::string(BASTION_SOURCE_DIR) + "/tests/data/chat_golden.json"));
    const std::time_t now = noon_of(golden.at("now"));
    ASSERT_GT(golden.at("cases").size(), 40u);
    for (const json& one : golden.at("cases")) {
        const std::string title = one.at("conversation");
        SCOPED_TRACE(one.at("template").get<std::string>() + ", " + title);
        std::vector<ChatMessage> messages;
        for (const json& message : golden.at("conversations").at(title)) {
            messages.push_back({message.at("role"), message.at("content")});
        }
        const auto text = compiled(one.at("template"), one.at("bos"), one.at("eos"))
                              .render(messages, one.at("add_generation_prompt"), one.at("thinking"), now);
        if (one.contains("raises")) {
            ASSERT_FALSE(text.ok());
            EXPECT_EQ(text.error().kind, ErrorKind::bad_input);
            EXPECT_TRUE(text.error().message.ends_with(one.at("raises").get<std::string>())) << text.error().message;
        } else {
            ASSERT_TRUE(text.ok()) << text.error().message;
            EXPECT_EQ(*text, one.at("expected").get<std::string>());
        }
    }
}

TEST(ChatRender, SmolLm2AddsItsDefaultSystemPromptOnlyWhereNoneIsGiven) {
    const ChatTemplate chat = compiled(kSmolLm2);
    const std::string prompt = "You are a helpful AI assistant named SmolLM";
    EXPECT_NE(chat.render(user("hi"), true).value().find(prompt), std::string::npos);
    const auto own = chat.render({{"system", "Be brief."}, {"user", "hi"}}, true).value();
    EXPECT_EQ(own.find(prompt), std::string::npos);
    EXPECT_NE(own.find("system\nBe brief."), std::string::npos);
}

TEST(ChatRender, Qwen3WithoutThinkingGetsAnEmptyThinkBlock) {
    const ChatTemplate chat = compiled(kQwen3);
    const std::string on = chat.render(user("hi"), true, true).value();
    EXPECT_EQ(chat.render(user("hi"), true, false).value(), on + "<think>\n\n</think>\n\n");
    EXPECT_EQ(chat.render(user("hi"), true).value(), on) << "thinking is the default";
}

TEST(ChatRender, TheDateIsTheOneGiven) {
    const ChatTemplate chat = compiled(kLlama32);
    const auto dated = [&](const char* day) { return chat.render(user("hi"), true, true, noon_of(day)).value(); };
    EXPECT_NE(dated("2031-12-24").find("Today Date: 24 Dec 2031\n"), std::string::npos);
    EXPECT_EQ(dated("2031-12-24"), dated("2031-12-24"));
    EXPECT_NE(dated("2031-12-24"), dated("2031-12-25"));
}

TEST(ChatRender, WithoutAGivenDateTheClockIsShown) {
    const std::string year = rendered("{{ strftime_now('%Y') }}");
    EXPECT_EQ(year.size(), 4u);
    EXPECT_GE(std::stoi(year), 2024);
}

TEST(ChatRender, ContentIsTextNotTemplate) {
    const std::string tricky = "{{ 7 * 6 }} {% if %} {# gone? #} <|im_end|> \\n \"quotes\" \xF0\x9F\x8E\xA8";
    EXPECT_EQ(rendered("[{{ messages[0].content }}]", user(tricky)), "[" + tricky + "]");
}

TEST(ChatRender, ANulByteInTheContentIsKept) {
    const std::string content("a\0b", 3);
    EXPECT_EQ(rendered("[{{ messages[0].content }}]", user(content)), "[" + content + "]");
}

TEST(ChatRender, TheNamesOfApplyChatTemplateAreDefined) {
    EXPECT_EQ(rendered("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ enable_thinking }}"),
              "<s></s>TrueTrue");
    EXPECT_EQ(rendered("{{ tools is none }}{{ documents is none }}{{ undefined_name is defined }}"), "TrueTrueFalse");
}

TEST(ChatRender, OneCompiledTemplateServesManyThreadsAtOnce) {
    const ChatTemplate chat = compiled(kLlama32, "<|begin_of_text|>", "<|eot_id|>");
    const std::time_t now = noon_of("2025-03-09");
    std::vector<std::string> alone, together(4);
    for (int i = 0; i < 4; ++i) alone.push_back(chat.render(user(std::to_string(i)), true, true, now).value());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 20; ++round) {
                together[i] = chat.render(user(std::to_string(i)), true, true, now).value();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(together, alone);
}

/// The message of a failed result: one line, and bad input.
template <class T>
std::string complaint(const Result<T>& result) {
    if (result.ok()) {
        ADD_FAILURE() << "expected an error";
        return {};
    }
    EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
    return result.error().message;
}

TEST(ChatErrors, ATemplateThatDoesNotParseIsRefusedInOneLine) {
    for (const char* broken :
         {"{% if messages %}never closed", "{{ messages", "{% for m in messages %}{{ m }}", "{{ 'open string }}",
          "{% endif %}", "{% nonsense %}", "{{ 1 + }}", "{% for 1 in 2 %}"}) {
        SCOPED_TRACE(broken);
        const auto chat = ChatTemplate::compile(broken, "", "");
        if (chat.ok()) {  // accepted by the parser: then running it must fail cleanly
            complaint(chat->render(user("hi"), true));
        } else {
            EXPECT_TRUE(complaint(chat).starts_with("the chat template does not parse: ")) << complaint(chat);
        }
    }
}

TEST(ChatErrors, WhatATemplateRaisesIsTheReason) {
    const auto chat = compiled(kGemma2);
    EXPECT_EQ(complaint(chat.render({{"system", "x"}, {"user", "y"}}, true)),
              "the chat template refuses the messages: System role not supported");
    EXPECT_NE(complaint(chat.render({{"user", "x"}, {"user", "y"}}, true)).find("roles must alternate"),
              std::string::npos);
}

TEST(ChatErrors, OnlyTheFirstLineOfARaisedTextIsShown) {
    const auto chat = ChatTemplate::compile("{{ raise_exception('first\\nsecond') }}", "", "").value();
    EXPECT_EQ(complaint(chat.render({}, true)), "the chat template refuses the messages: first");
}

TEST(ChatErrors, AFailedRenderingLeavesTheTemplateUsable) {
    const auto chat = compiled(kGemma2, "<bos>");
    const std::string before = chat.render(user("hi"), true).value();
    complaint(chat.render({{"system", "x"}}, true));
    EXPECT_EQ(chat.render(user("hi"), true).value(), before);
}

}  // namespace
}  // namespace bastion
