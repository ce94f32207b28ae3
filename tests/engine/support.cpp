#include "engine/support.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace bastion::test {

namespace {

std::unique_ptr<Engine> open_target(EngineOptions options) {
    options.target = BASTION_DEPS_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(engine).value() : nullptr;
}

}  // namespace

std::unique_ptr<Engine> open_embedded(EngineOptions options) {
    options.drafter = BASTION_SOURCE_DIR "/models/smollm2-135m-dflash.gguf";
    return open_target(std::move(options));
}

std::unique_ptr<Engine> open_without_drafter(EngineOptions options) { return open_target(std::move(options)); }

Engine& shared_engine() {
    static const std::unique_ptr<Engine> shared = [] {
        EngineOptions options;
        options.ctx = 512;
        options.slots = 1;
        return open_embedded(options);
    }();
    return *shared;
}

std::unique_ptr<Session> new_session(Engine& engine) {
    auto session = engine.open_session();
    EXPECT_TRUE(session.ok()) << session.error().message;
    return std::move(session).value();
}

std::vector<Answer> finish(Engine& engine, const std::vector<Session*>& sessions) {
    std::vector<Answer> answers(sessions.size());
    const auto busy = [](const Session* s) { return !s->done(); };
    while (std::any_of(sessions.begin(), sessions.end(), busy)) {
        const Status status = engine.step(sessions);
        EXPECT_TRUE(status.ok()) << status.error().message;
        if (!status.ok()) break;
        for (std::size_t i = 0; i < sessions.size(); ++i) answers[i].text += sessions[i]->take_text();
    }
    for (std::size_t i = 0; i < sessions.size(); ++i) {
        answers[i].text += sessions[i]->take_text();
        answers[i].tokens = sessions[i]->answer();
        answers[i].stats = sessions[i]->stats();
    }
    return answers;
}

Answer answer(Engine& engine, Session& session, const std::vector<Token>& prompt, const GenerateOptions& options) {
    const Status begun = session.begin(prompt, options);
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return finish(engine, {&session}).front();
}

Answer answer(Engine& engine, const std::vector<Token>& prompt, const GenerateOptions& options) {
    return answer(engine, *new_session(engine), prompt, options);
}

std::vector<Token> chat_prompt(const Engine& engine, const std::string& text) {
    const auto rendered = engine.render_chat({{"user", text}});
    EXPECT_TRUE(rendered.ok()) << rendered.error().message;
    return engine.encode(*rendered, /*special=*/true);
}

std::vector<std::string> sample_prompts() {
    std::ifstream in(BASTION_SOURCE_DIR "/tests/data/prompts.jsonl");
    std::vector<std::string> prompts;
    for (std::string line; std::getline(in, line);) prompts.push_back(nlohmann::json::parse(line)["prompt"]);
    EXPECT_GE(prompts.size(), 30u);
    return prompts;
}

GenerateOptions method(Method m, int budget, int max_tokens) {
    GenerateOptions o;
    o.method = m;
    o.budget = budget;
    o.max_tokens = max_tokens;
    return o;
}

}  // namespace bastion::test
