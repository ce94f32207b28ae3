// The embedded pair as tests use it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bastion/engine.h"

namespace bastion::test {

/// An engine on the embedded pair, or a test failure with the error's sentence.
std::unique_ptr<Engine> open_embedded(EngineOptions options = {});

/// An engine on the embedded target alone.
std::unique_ptr<Engine> open_without_drafter(EngineOptions options = {});

/// One engine on the embedded pair for all tests: 512 tokens, one session at a time.
Engine& shared_engine();

/// One session that answers one prompt after another, with what the answer brought.
struct Answer {
    std::vector<Token> tokens;
    std::string text;
    Stats stats;
};

/// Steps until every session is done; returns their answers.
std::vector<Answer> finish(Engine& engine, const std::vector<Session*>& sessions);

/// Begins and finishes one answer in `session`.
Answer answer(Engine& engine, Session& session, const std::vector<Token>& prompt, const GenerateOptions& options);

/// The same in a new session.
Answer answer(Engine& engine, const std::vector<Token>& prompt, const GenerateOptions& options);

std::unique_ptr<Session> new_session(Engine& engine);

/// A user message through the chat template.
std::vector<Token> chat_prompt(const Engine& engine, const std::string& text);

/// The prompts of tests/data/prompts.jsonl.
std::vector<std::string> sample_prompts();

GenerateOptions method(Method m, int budget = 0, int max_tokens = 48);

}  // namespace bastion::test
