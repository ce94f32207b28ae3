#include "budget/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "profiles.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;

struct TestNode {
    int parent, depth;
    double logprob;
    bool accepted;
};

const TestNode kRoot{-1, 0, 0, true};

/// A line as `generate --trace` writes it. `emitted` -1: a token for every accepted node.
Json cycle(const std::vector<TestNode>& nodes, double draft_ms = 2, double verify_ms = 10, int position = 100,
           int emitted = -1) {
    Json json = {
        {"cycle", 0},           {"position", position},   {"budget", nodes.size()}, {"predicted_ms", 1},
        {"draft_ms", draft_ms}, {"verify_ms", verify_ms}, {"nodes", Json::array()}, {"emitted", Json::array()}};
    int accepted = 0;
    for (const TestNode& n : nodes) {
        json["nodes"].push_back({{"token", 5},
                                 {"text", "x"},
                                 {"parent", n.parent},
                                 {"depth", n.depth},
                                 {"logprob", n.logprob},
                                 {"accepted", n.accepted}});
        accepted += n.accepted;
    }
    for (int i = 0; i < (emitted < 0 ? accepted : emitted); ++i) json["emitted"].push_back(7);
    return json;
}

/// Three drafted cycles and a plain one. Accepted: nodes 0, 1, 3 of 5; node 0 of 4; nodes 0, 2 of 4.
std::vector<Json> example() {
    return {cycle({kRoot, {0, 1, -0.1, true}, {0, 1, -1, false}, {1, 2, -1.5, true}, {1, 2, -2, false}}),
            cycle({kRoot}, 0, 8), cycle({kRoot, {0, 1, -0.2, false}, {1, 2, -0.5, false}, {2, 3, -0.9, false}}, 3, 9),
            cycle({kRoot, {0, 1, -0.5, false}, {0, 1, -0.9, true}, {1, 2, -1.1, false}}, 2.5, 9.5, 200)};
}

std::string text_of(const std::vector<Json>& cycles) {
    std::string text;
    for (const Json& one : cycles) text += one.dump() + "\n";
    return text;
}

std::vector<RecordedCycle> read(const std::vector<Json>& cycles) {
    auto result = read_trace(text_of(cycles), "t.jsonl");
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return result.ok() ? std::move(result).value() : std::vector<RecordedCycle>();
}

std::string refusal(const std::string& text) {
    const auto result = read_trace(text, "t.jsonl");
    if (result.ok()) return "";
    EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
    return result.error().message;
}

TEST(Trace, ReadsWhatGenerateWrites) {
    const auto cycles = read(example());
    ASSERT_EQ(cycles.size(), 4u);
    EXPECT_EQ(cycles[0].line, 1);
    EXPECT_EQ(cycles[0].position, 100);
    EXPECT_EQ(cycles[0].draft_ms, 2);
    EXPECT_EQ(cycles[0].verify_ms, 10);
    EXPECT_EQ(cycles[0].emitted, 3);
    EXPECT_EQ(cycles[0].depth, 2);
    EXPECT_EQ(cycles[0].logprobs, (std::vector<double>{0, -0.1, -1, -1.5, -2}));
    EXPECT_EQ(cycles[0].accepted, (std::vector<int>{0, 1, 3}));
    EXPECT_TRUE(cycles[0].drafted());
    EXPECT_FALSE(cycles[1].drafted());
    EXPECT_EQ(read_trace("\n" + text_of(example()) + " \r\n", "t.jsonl")->at(3).line, 5) << "empty lines are skipped";
}

TEST(Trace, SmallerTreesWouldHaveDrawnTheBeginningOfTheWalk) {
    const auto cycles = read(example());
    const std::vector<int> expected{1, 2, 2, 3, 3};
    for (int size = 1; size <= 5; ++size) EXPECT_EQ(cycles[0].drawn_within(size), expected[size - 1]) << size;
    EXPECT_EQ(cycles[3].drawn_within(2), 1) << "the accepted sibling is not among two nodes";
}

TEST(Trace, CountsTokensBySizeByHand) {
    auto with_copies = example();  // a cycle of copies alone changes nothing else
    with_copies.push_back(cycle({kRoot, {0, 1, -0.1, true}, {1, 2, -0.2, true}}, 0, 8));
    const RecordedAcceptance recorded = recorded_acceptance(read(with_copies));
    EXPECT_EQ(recorded.undrafted_trees, 1);
    EXPECT_EQ(recorded_acceptance(read(example())).undrafted_trees, 0);
    EXPECT_EQ(recorded.cycles, 3) << "the plain cycle does not count";
    EXPECT_EQ(recorded.smallest, 4);
    EXPECT_EQ(recorded.largest, 5);
    EXPECT_EQ(recorded.known_nodes, 4) << "nothing is known of 5 nodes in two of three cycles";
    // tau(1) = 1, tau(2) = (2+1+1)/3, tau(3) = (2+1+2)/3, tau(4) = (3+1+2)/3.
    ASSERT_EQ(recorded.gains.size(), 3u);
    for (const double gain : recorded.gains) EXPECT_DOUBLE_EQ(gain, 1.0 / 3);
}

TEST(Trace, AFewSmallTreesDoNotHideTheRest) {
    std::vector<Json> cycles(39, cycle({kRoot, {0, 1, -0.1, true}, {1, 2, -0.3, false}}));
    cycles.push_back(cycle({kRoot, {0, 1, -0.1, false}}));
    EXPECT_EQ(recorded_acceptance(read(cycles)).known_nodes, 3);
    EXPECT_DOUBLE_EQ(recorded_acceptance(read(cycles)).gains[0], 39.0 / 40) << "but they count";
    cycles.resize(10);
    cycles.push_back(cycle({kRoot, {0, 1, -0.1, false}}));
    EXPECT_EQ(recorded_acceptance(read(cycles)).known_nodes, 2) << "one of eleven is too many";
}

TEST(Trace, NamesTheLineAndThePlaceOfBadInput) {
    const auto changed = [](const std::string& pointer, const Json& value) {
        auto cycles = example();
        cycles[2][Json::json_pointer(pointer)] = value;
        return text_of(cycles);
    };
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", "is empty"},
        {"\n \n", "is empty"},
        {"{\n", "line 1: is not valid JSON"},
        {text_of(example()) + "{\"cycle\":", "line 5: is not valid JSON"},
        {"[1]\n", "line 1: must hold one JSON object"},
        {"{}\n", "line 1: position"},
        {text_of({cycle({kRoot}, 0), cycle({kRoot}, 0)}), "2 cycles but none with a draft"},
        {changed("/position", -1), "line 3: position"},
        {changed("/position", 1.5), "line 3: position"},
        {changed("/position", 1e10), "line 3: position"},
        {changed("/draft_ms", -1), "line 3: draft_ms"},
        {changed("/draft_ms", nullptr), "line 3: draft_ms"},
        {changed("/verify_ms", 0), "line 3: verify_ms"},
        {changed("/verify_ms", "9"), "line 3: verify_ms"},
        {changed("/nodes", Json::array()), "line 3: nodes must be a non-empty array"},
        {changed("/nodes", nullptr), "line 3: nodes must be a non-empty array"},
        {changed("/nodes/1", 3), "line 3: nodes[1] must be an object"},
        {changed("/nodes/0/parent", 0), "line 3: nodes[0].parent must be -1"},
        {changed("/nodes/1/parent", -1), "line 3: nodes[1].parent must be an earlier node"},
        {changed("/nodes/1/parent", 1), "line 3: nodes[1].parent must be an earlier node"},
        {changed("/nodes/0/depth", 1), "line 3: nodes[0].depth must be 0"},
        {changed("/nodes/3/depth", 2), "line 3: nodes[3].depth must be one more"},
        {changed("/nodes/2/logprob", nullptr), "line 3: nodes[2].logprob"},
        {changed("/nodes/2/accepted", 1), "line 3: nodes[2].accepted must be true or false"},
        {changed("/nodes/2/accepted", true), "line 3: nodes[2].accepted must be false"},
        {changed("/nodes/0/accepted", false), "line 3: nodes[0].accepted must be true"},
        {changed("/emitted", Json::array({1, 2})), "line 3: emitted"},
        {changed("/emitted", 1), "line 3: emitted"},
    };
    for (const auto& [text, part] : cases) {
        const std::string message = refusal(text);
        EXPECT_NE(message.find(part), std::string::npos) << part << " <- " << message;
        EXPECT_NE(message.find("t.jsonl"), std::string::npos) << message;
    }
    EXPECT_EQ(refusal(text_of({cycle({kRoot, {0, 1, -1, true}}, 1, 1, 0, 1)})), "") << "the end of the text is drawn, "
                                                                                       "but not emitted";
}

TEST(Trace, KnowsTreesThatAreNotBestFirst) {
    auto cycles = example();
    EXPECT_TRUE(check_best_first(read(cycles), "t.jsonl").ok());
    cycles[2]["nodes"][3]["logprob"] = -0.5 + 1e-7;
    EXPECT_TRUE(check_best_first(read(cycles), "t.jsonl").ok()) << "a rounding";
    cycles[2]["nodes"][3]["logprob"] = -0.4;
    const Status status = check_best_first(read(cycles), "t.jsonl");
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("'t.jsonl' line 3: node 3"), std::string::npos) << status.error().message;
}

TEST(Replay, EveryCycleChoosesByItsOwnProbabilities) {
    // A draft of 1 ms and passes of 10, 10.5 and 20 ms: the second node always pays, the third never.
    Profile profile = test::profile_with(1, 0);
    profile.grid = {{1, 100, 10}, {2, 100, 10.5}, {3, 100, 20}, {8, 100, 70}};
    const LatencyModel latency(profile, ControllerKind::curve);
    const auto cycles = read(example());
    const Replay replay = replay_search(cycles, latency, 100, 64);
    EXPECT_DOUBLE_EQ(replay.mean_nodes, 2);
    EXPECT_DOUBLE_EQ(replay.tau, (2 + 1 + 1) / 3.0);
    EXPECT_NEAR(replay.speedup, 4 * 10 / (3 * 11.5), 1e-12);
    EXPECT_EQ(replay.at_the_end, 0);

    profile.grid = {{1, 100, 10}, {8, 100, 10}};
    const LatencyModel flat(profile, ControllerKind::curve);
    const Replay all = replay_search(cycles, flat, 100, 64);
    EXPECT_DOUBLE_EQ(all.tau, (3 + 1 + 2) / 3.0);
    EXPECT_NEAR(all.mean_nodes, 13 / 3.0, 1e-12);
    EXPECT_EQ(all.at_the_end, 3);
    EXPECT_DOUBLE_EQ(replay_search(cycles, flat, 100, 3).mean_nodes, 3);
    EXPECT_EQ(replay_search(cycles, flat, 100, 3).at_the_end, 0) << "the limit was asked for";
}

TEST(TraceCheck, ComparesPredictedWithRecordedTimesByHand) {
    Profile profile = test::profile_with(2, 0.5);
    profile.ar_ms = 8;
    profile.grid = {{1, 100, 8}, {4, 100, 9}, {5, 100, 11}, {1, 200, 9}, {4, 200, 10}, {5, 200, 12}};
    const TraceCheck check = check_trace(read(example()), profile, ControllerKind::curve);
    EXPECT_EQ(check.cycles, 4);
    EXPECT_EQ(check.drafted, 3);
    EXPECT_EQ(check.tokens, 3 + 1 + 1 + 2);
    EXPECT_DOUBLE_EQ(check.predicted_draft_ms, 6);
    EXPECT_DOUBLE_EQ(check.recorded_draft_ms, 7.5);
    EXPECT_DOUBLE_EQ(check.predicted_verify_ms, 11 + 8 + 9 + 10);
    EXPECT_DOUBLE_EQ(check.recorded_verify_ms, 10 + 8 + 9 + 9.5);
    EXPECT_DOUBLE_EQ(check.predicted_speedup, 7 * 8 / 44.0);
    EXPECT_DOUBLE_EQ(check.recorded_speedup, 7 * 8 / 44.0);
    EXPECT_NEAR(check.error(), 0, 1e-12);
    ASSERT_EQ(check.sizes.size(), 3u);
    EXPECT_EQ(check.sizes[1].nodes, 4);
    EXPECT_EQ(check.sizes[1].cycles, 2);
    EXPECT_DOUBLE_EQ(check.sizes[1].predicted_verify_ms, 9.5);
    EXPECT_DOUBLE_EQ(check.sizes[1].recorded_verify_ms, 9.25);
}

TEST(TraceCheck, AProfileThatSaysHalfTheTimePromisesTwiceTheSpeed) {
    Profile profile = test::profile_with(1, 0);
    profile.grid = {{1, 100, 5}, {4, 100, 5}};
    const auto cycles = read({cycle({kRoot, {0, 1, -0.1, true}}, 2, 10)});
    EXPECT_NEAR(check_trace(cycles, profile, ControllerKind::curve).error(), 1.0, 1e-12);
    EXPECT_NEAR(check_trace(cycles, profile, ControllerKind::curve).predicted_speedup,
                2 * check_trace(cycles, profile, ControllerKind::curve).recorded_speedup, 1e-12);
}

TEST(TraceCheck, LearningControllersLearnOnTheWay) {
    Profile profile = test::profile_with(2, 0);
    profile.fit = {0.2, 0, 0, 0};
    const std::vector<Json> same(200, cycle({kRoot, {0, 1, -0.1, true}}, 2, 10));
    const auto cycles = read(same);
    const double still = std::abs(check_trace(cycles, profile, ControllerKind::fixed_fit).error());
    const double learnt = std::abs(check_trace(cycles, profile, ControllerKind::ema_fixed_fit).error());
    EXPECT_GT(still, 0.5);
    EXPECT_LT(learnt, 0.3 * still);
}

}  // namespace
}  // namespace bastion
