#include "text/chat.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace bastion {
namespace {

/// The engine's words in one line. It wraps them: a lexer or parser error is followed by a picture of the source, a
/// runtime error comes after one, behind "Error: "; raise_exception adds a prefix.
std::string first_line(std::string_view words) {
    constexpr std::string_view kAfterPicture = "\nError: ";
    if (const std::size_t at = words.find(kAfterPicture); at != std::string_view::npos) {
        words.remove_prefix(at + kAfterPicture.size());
    }
    constexpr std::string_view kRaised = "Jinja Exception: ";
    if (words.starts_with(kRaised)) words.remove_prefix(kRaised.size());
    words.remove_prefix(std::min(words.size(), words.find_first_not_of("\r\n ")));
    words = words.substr(0, words.find_first_of("\r\n"));
    return words.empty() ? "no reason given" : std::string(words);
}

/// strftime_now. The engine's own uses std::localtime, whose buffer all threads share.
jinja::value format_now(const jinja::func_args& args) {
    args.ensure_vals<jinja::value_string>();
    const std::string format = args.get_pos(0)->as_string().str();
    std::tm local{};
    if (localtime_r(&args.ctx.current_time, &local) == nullptr) throw std::runtime_error("the time is out of range");
    std::array<char, 256> text;
    const std::size_t length = std::strftime(text.data(), text.size(), format.c_str(), &local);
    if (length == 0 && !format.empty()) throw std::runtime_error("strftime_now cannot format '" + format + "'");
    return jinja::mk_val<jinja::value_string>(std::string(text.data(), length));
}

jinja::value to_value(const std::vector<ChatMessage>& messages) {
    auto list = jinja::mk_val<jinja::value_array>();
    for (const ChatMessage& message : messages) {
        auto entry = jinja::mk_val<jinja::value_object>();
        entry->insert("role", jinja::mk_val<jinja::value_string>(message.role));
        entry->insert("content", jinja::mk_val<jinja::value_string>(message.content));
        list->push_back(entry);
    }
    return list;
}

}  // namespace

struct ChatTemplate::Impl {
    jinja::program program;
    std::string source;  ///< as the lexer normalised it; positions of errors refer to it
    std::string bos_text, eos_text;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<ChatTemplate> ChatTemplate::compile(const std::string& source, const std::string& bos_text,
                                           const std::string& eos_text) try {
    const jinja::lexer_result tokens = jinja::lexer().tokenize(source);
    auto impl = std::make_shared<Impl>();
    impl->program = jinja::parse_from_tokens(tokens);
    impl->source = tokens.source;
    impl->bos_text = bos_text;
    impl->eos_text = eos_text;
    return ChatTemplate(std::shared_ptr<const Impl>(std::move(impl)));
} catch (const std::bad_alloc&) {
    return runtime_error("not enough memory to compile the chat template");
} catch (const std::exception& e) {
    return bad_input("the chat template does not parse: " + first_line(e.what()));
}

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                         bool thinking, std::optional<std::time_t> now) const try {
    jinja::context context(impl_->source);
    if (now) context.current_time = *now;
    // The names that Hugging Face's apply_chat_template defines; templates are written against them.
    context.set_val("messages", to_value(messages));
    context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(add_generation_prompt));
    context.set_val("bos_token", jinja::mk_val<jinja::value_string>(impl_->bos_text));
    context.set_val("eos_token", jinja::mk_val<jinja::value_string>(impl_->eos_text));
    context.set_val("enable_thinking", jinja::mk_val<jinja::value_bool>(thinking));
    context.set_val("tools", jinja::mk_val<jinja::value_none>());
    context.set_val("documents", jinja::mk_val<jinja::value_none>());
    context.set_val("strftime_now", jinja::mk_val<jinja::value_func>("strftime_now", format_now));

    const jinja::value parts = jinja::runtime(context).execute(impl_->program);
    return jinja::runtime::gather_string_parts(parts)->as_string().str();
} catch (const std::bad_alloc&) {
    return runtime_error("not enough memory to render the chat template");
} catch (const std::exception& e) {
    return bad_input("the chat template refuses the messages: " + first_line(e.what()));
}

}  // namespace bastion
