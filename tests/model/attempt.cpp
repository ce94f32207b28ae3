#include "attempt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace bastion::test {
namespace {

/// Opens a target and, if `drafter_path` is not empty, a drafter for it, and runs one small pass of each.
Status open_and_run(const std::string& target_path, const std::string& drafter_path) {
    BASTION_ASSIGN(const auto device, Device::open("cpu", 1, Kernels::automatic));
    BASTION_ASSIGN(const GgufFile target_file, GgufFile::open(target_path));
    BASTION_ASSIGN(const ModelConfig config, read_target_config(target_file));
    BASTION_ASSIGN(const Weights weights, Weights::load(target_file, *device));
    BASTION_ASSIGN(KvPool kv, KvPool::create(*device, config.layers, config.kv_width(), 1, 64, GGML_TYPE_F16));
    const std::vector<Token> tokens{0, 1};
    const std::vector<std::int32_t> positions{0, 1}, parents{-1, 0};
    if (drafter_path.empty()) {
        Target target(config, weights, *device, kv, {}, nullptr);
        return target.pass(std::vector<SequenceRows>{{0, 0, tokens, positions, parents, {}}}, Outputs::logits);
    }
    BASTION_ASSIGN(const GgufFile drafter_file, GgufFile::open(drafter_path));
    BASTION_ASSIGN(const ModelConfig drafter_config, read_drafter_config(drafter_file));
    BASTION_CHECK(check_pair(target_file, config, drafter_file, drafter_config));
    BASTION_ASSIGN(const Weights drafter_weights, Weights::load(drafter_file, *device));
    const int cells = 64 + drafter_config.block_size;
    BASTION_ASSIGN(KvPool drafter_kv,
                   KvPool::create(*device, drafter_config.layers, drafter_config.kv_width(), 1, cells, GGML_TYPE_F16));
    const auto& taps = drafter_config.target_layers;
    BASTION_ASSIGN(FeaturePool features,
                   FeaturePool::create(*device, static_cast<int>(taps.size()) * config.hidden, 4));
    Target target(config, weights, *device, kv, taps, &features);
    const auto rows = features.take(2);
    BASTION_CHECK(target.pass(std::vector<SequenceRows>{{0, 0, tokens, positions, parents, rows}}, Outputs::argmax));
    Drafter drafter(drafter_config, drafter_weights, config, weights, *device, drafter_kv, features);
    BASTION_CHECK(drafter.inject(std::vector<Injection>{{0, rows, positions}}));
    const auto lattices = drafter.draft(std::vector<DraftRequest>{{0, 2, 2}}, 4);
    return lattices.ok() ? Status() : lattices.error();
}

}  // namespace

Outcome attempt(const std::string& target, const std::string& drafter) {
    int ends[2];
    if (pipe(ends) != 0) return {Outcome::crashed, "no pipe"};
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        alarm(60);
        setenv("GGML_NO_BACKTRACE", "1", 1);
        ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        const Status status = open_and_run(target, drafter);
        if (status.ok()) _exit(0);
        const std::string& text = status.error().message;
        const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
        _exit(written ? 3 : 4);
    }
    close(ends[1]);
    std::string message;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) message.append(buffer, got);
    close(ends[0]);
    int state = 0;
    waitpid(child, &state, 0);
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {Outcome::opened, ""};
    if (WIFEXITED(state) && WEXITSTATUS(state) == 3) return {Outcome::refused, message};
    return {Outcome::crashed, WIFSIGNALED(state) ? std::string("signal ") + strsignal(WTERMSIG(state))
                                                 : "exit " + std::to_string(WEXITSTATUS(state))};
}

void expect_refused(const Outcome& outcome, const std::string& file, const std::string& named,
                    const std::string& what) {
    ASSERT_EQ(outcome.kind, Outcome::refused) << what << ": " << (outcome.kind ? outcome.message : "was opened");
    EXPECT_NE(outcome.message.find(file), std::string::npos) << what << " is not named by file: " << outcome.message;
    EXPECT_NE(outcome.message.find(named), std::string::npos) << what << ": no " << named << " in: " << outcome.message;
    EXPECT_EQ(outcome.message.find('\n'), std::string::npos) << what << ": more than a line: " << outcome.message;
}

Outcome FilePair::with(const std::string& changed) const {
    return *drafter ? attempt(model_path(target), changed) : attempt(changed);
}

const std::vector<FilePair>& tiny_pairs() {
    static const std::vector<FilePair> pairs{{"tiny-llama3", ""},
                                             {"tiny-qwen3", ""},
                                             {"tiny-qwen3moe", ""},
                                             {"tiny-llama3-q4_0", ""},
                                             {"tiny-llama3", "tiny-llama3-dflash"},
                                             {"tiny-llama3", "tiny-llama3-dflash-d2t"},
                                             {"tiny-llama3", "tiny-llama3-dflash-window"},
                                             {"tiny-qwen3", "tiny-qwen3-dflash"}};
    return pairs;
}

}  // namespace bastion::test
