#include "engine/tree_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "../tree/lattices.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;

Profile cheap_profile() {
    Profile profile;
    profile.shape.layers = 2;
    profile.shape.hidden = profile.shape.q_width = profile.shape.kv_width = 64;
    profile.shape.ffn_width = 128;
    profile.shape.vocab = 1000;
    profile.peak = {1e9, 1e9};
    profile.draft_ms = 0.5;
    profile.aux_ms = 0.1;
    profile.grid = {{1, 64, 1.0}, {64, 64, 5.0}};
    return profile;
}

Json tree_of(const std::string& lattice, int budget) {
    const auto text = tree_from_lattice_json(lattice, "l.json", budget, nullptr, 0);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    return text.ok() ? Json::parse(*text) : Json();
}

std::string refusal(const std::string& lattice, int budget = 4) {
    const auto text = tree_from_lattice_json(lattice, "l.json", budget, nullptr, 0);
    if (text.ok()) return "";
    EXPECT_EQ(text.error().kind, ErrorKind::bad_input);
    return text.error().message;
}

TEST(TreeCommand, PrintsTheTreeInInsertionOrder) {
    const Json tree = tree_of(R"({"tokens":[[11,12],[21,22]],"logprobs":[[-0.5,-1.5],[-0.25,-2]]})", 4);
    EXPECT_EQ(tree["budget"], 4);
    EXPECT_EQ(tree["nodes"], Json::parse(R"([{"token":-1,"parent":-1,"depth":0,"logprob":0.0},
                                             {"token":11,"parent":0,"depth":1,"logprob":-0.5},
                                             {"token":21,"parent":1,"depth":2,"logprob":-0.75},
                                             {"token":12,"parent":0,"depth":1,"logprob":-1.5}])"));
    EXPECT_DOUBLE_EQ(tree["surrogate"].get<double>(), 1 + std::exp(-0.5) + std::exp(-0.75) + std::exp(-1.5));
}

TEST(TreeCommand, SortsRowsAndBreaksTiesByToken) {
    const Json tree = tree_of(R"({"tokens":[[5,9,3]],"logprobs":[[-2,-1,-2]]})", 4);
    std::vector<int> tokens;
    for (const Json& node : tree["nodes"]) tokens.push_back(node["token"].get<int>());
    EXPECT_EQ(tokens, (std::vector<int>{-1, 9, 3, 5}));
}

TEST(TreeCommand, SumsInDoublePrecision) {
    const Json tree = tree_of(R"({"tokens":[[1],[2]],"logprobs":[[-0.1],[-0.2]]})", 3);
    EXPECT_EQ(tree["nodes"][1]["logprob"], -0.1);
    EXPECT_EQ(tree["nodes"][2]["logprob"], -0.1 + -0.2);
}

TEST(TreeCommand, CutsTheBudgetToTheLattice) {
    const std::string lattice = R"({"tokens":[[1,2],[3,4]],"logprobs":[[-1,-2],[-1,-2]]})";
    for (const int budget : {1, 2, 6, 7, 8, 1024, std::numeric_limits<int>::max()}) {
        const Json tree = tree_of(lattice, budget);
        EXPECT_EQ(tree["budget"], std::min(budget, 7));
        EXPECT_EQ(tree["nodes"].size(), static_cast<std::size_t>(std::min(budget, 7)));
    }
    EXPECT_NE(refusal(lattice, -1), "");
}

TEST(TreeCommand, AllowsRowsThatAreNotNormalised) {
    EXPECT_EQ(tree_of(R"({"tokens":[[1,2]],"logprobs":[[3,2.5]]})", 3)["nodes"][1]["logprob"], 3.0);
    EXPECT_NE(refusal(R"({"tokens":[[1]],"logprobs":[[1e6]]})").find("surrogate"), std::string::npos);
    EXPECT_EQ(tree_of(R"({"tokens":[[1],[2]],"logprobs":[[-1e308],[-1e308]]})", 3)["budget"], 2);
}

TEST(TreeCommand, RefusesHugeTrees) {
    Json tokens = Json::array(), logprobs = Json::array();
    for (int row = 0; row < 8; ++row) {
        Json ids = Json::array(), values = Json::array();
        for (int rank = 0; rank < 8; ++rank) {
            ids.push_back(rank);
            values.push_back(-1 - rank);
        }
        tokens.push_back(ids);
        logprobs.push_back(values);
    }
    const std::string lattice = Json{{"tokens", tokens}, {"logprobs", logprobs}}.dump();
    EXPECT_EQ(refusal(lattice, 2000000), "budget must be at most 1048576 nodes, not 2000000");
    EXPECT_EQ(tree_of(lattice, 5000)["budget"], 5000);
}

TEST(TreeCommand, NamesThePlaceOfBadInput) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {R"({"tokens":[[1]],"logprobs":[[-Infinity]]})", "not valid JSON"},
        {R"({"tokens":[[1]],"logprobs":[[1e999]]})", "not valid JSON"},
        {"[]", "one JSON object"},
        {"null", "one JSON object"},
        {"{}", "`tokens`"},
        {R"({"tokens":[[1]]})", "`logprobs`"},
        {R"({"tokens":null,"logprobs":[[-1]]})", "tokens"},
        {R"({"tokens":[],"logprobs":[]})", "non-empty array of rows in tokens"},
        {R"({"tokens":[[]],"logprobs":[[]]})", "tokens[0]"},
        {R"({"tokens":[[1],2],"logprobs":[[-1],[-1]]})", "tokens[1]"},
        {R"({"tokens":[[1]],"logprobs":[[-1],[-1]]})", "1 rows of tokens but 2 rows of logprobs"},
        {R"({"tokens":[[1,2],[3]],"logprobs":[[-1,-2],[-1]]})", "1 entries in tokens[1], expected 2"},
        {R"({"tokens":[[1,2],[3,4]],"logprobs":[[-1,-2],[-1]]})", "1 entries in logprobs[1], expected 2"},
        {R"({"tokens":[[1,-2]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[[1,2.0]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[[1,null]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[[1,true]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[["a",1]],"logprobs":[[-1,-2]]})", "tokens[0][0]"},
        {R"({"tokens":[[1,2147483648]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[[1,18446744073709551615]],"logprobs":[[-1,-2]]})", "tokens[0][1]"},
        {R"({"tokens":[[1],[2]],"logprobs":[[-1],[null]]})", "logprobs[1][0]"},
        {R"({"tokens":[[1],[2]],"logprobs":[[-1],["-1"]]})", "logprobs[1][0]"},
        {R"({"tokens":[[1,2],[4,4]],"logprobs":[[-1,-2],[-1,-2]]})", "repeats token 4 of its row in tokens[1][1]"},
    };
    for (const auto& [lattice, place] : cases) {
        const std::string message = refusal(lattice);
        EXPECT_NE(message.find(place), std::string::npos) << lattice << " -> " << message;
        EXPECT_NE(message.find("l.json"), std::string::npos) << lattice << " -> " << message;
    }
}

TEST(TreeCommand, AutoNeedsAProfile) {
    EXPECT_NE(refusal(R"({"tokens":[[1]],"logprobs":[[-1]]})", 0).find("profile"), std::string::npos);
}

TEST(TreeCommand, AutoStopsWhereTheNextNodeDoesNotPay) {
    const Profile profile = cheap_profile();
    const std::string lattice =
        R"({"tokens":[[1,2,3],[4,5,6],[7,8,9]],"logprobs":[[-0.1,-3,-5],[-0.2,-3,-5],[-0.3,-3,-5]]})";
    const auto text = tree_from_lattice_json(lattice, "l.json", 0, &profile, 100);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const Json tree = Json::parse(*text);

    const Json large = tree_of(lattice, 40);
    const LatencyModel model(profile, ControllerKind::fixed_fit);
    const auto rate = [&](int nodes) {
        double surrogate = 0;
        for (int i = 0; i < nodes; ++i) surrogate += std::exp(large["nodes"][i]["logprob"].get<double>());
        return surrogate / (model.draft_ms() + model.aux_ms() + model.verify_ms(nodes, 100));
    };
    int expected = 1;
    while (expected < 40 && rate(expected + 1) >= rate(expected)) ++expected;
    EXPECT_EQ(tree["budget"], expected);
    EXPECT_GT(expected, 1);
    EXPECT_LT(expected, 40);
    EXPECT_EQ(tree["nodes"].size(), static_cast<std::size_t>(expected));
}

TEST(Grow, FeedsTheSearchUntilItOrTheLatticeStops) {
    Lattice lattice;
    lattice.depth = 3;
    lattice.width = 1;
    lattice.tokens = {1, 2, 3};
    lattice.logprobs = {-0.1f, -0.1f, -0.1f};
    Profile profile = cheap_profile();
    profile.grid = {{1, 64, 10.0}, {2, 64, 10.0}};
    const LatencyModel flat(profile, ControllerKind::curve);
    const auto grown = [&](int max_nodes) {
        TreeBuilder builder(lattice, 0);
        BudgetSearch search(flat, 64, max_nodes);
        const int best = grow(builder, search, max_nodes);
        EXPECT_EQ(builder.tree().size(), best) << "a flat cost makes every node pay";
        EXPECT_EQ(search.best_nodes(), best);
        return best;
    };
    EXPECT_EQ(grown(100), 4);
    EXPECT_EQ(grown(3), 3);
    EXPECT_EQ(grown(1), 1);
}

TEST(Grow, ReturnsTheBestTreeNotTheLargest) {
    Lattice lattice;
    lattice.depth = 2;
    lattice.width = 2;
    lattice.tokens = {1, 2, 3, 4};
    lattice.logprobs = {-0.1f, -5.0f, -6.0f, -7.0f};
    Profile profile = cheap_profile();
    profile.grid = {{1, 64, 10.0}, {2, 64, 10.5}, {8, 64, 20.0}};
    const LatencyModel model(profile, ControllerKind::curve);
    TreeBuilder builder(lattice, 0);
    BudgetSearch search(model, 64, 64);
    EXPECT_EQ(grow(builder, search, 64), 2);
    EXPECT_GT(builder.tree().size(), 2);
    EXPECT_EQ(builder.take(2).size(), 2);
}

/// A prefix-closed tree as far as the search cares.
struct Sized {
    int nodes;
    double surrogate;
};

/// Every prefix-closed tree over a lattice, by deciding on each node below an accepted one; not only best-first ones.
void enumerate(const Lattice& lattice, std::vector<Node> open, Sized tree, std::vector<Sized>& out) {
    if (open.empty()) {
        out.push_back(tree);
        return;
    }
    const Node node = open.back();
    open.pop_back();
    enumerate(lattice, open, tree, out);  // without the node and all below it
    if (node.depth < lattice.depth) {
        for (int rank = 0; rank < lattice.width; ++rank) {
            open.push_back({0, 0, node.depth + 1, rank, node.logprob + lattice.logprob(node.depth, rank)});
        }
    }
    enumerate(lattice, open, {tree.nodes + 1, tree.surrogate + std::exp(node.logprob)}, out);
}

std::vector<Sized> all_trees(const Lattice& lattice) {
    std::vector<Node> open;
    for (int rank = 0; rank < lattice.width; ++rank) open.push_back({0, 0, 1, rank, lattice.logprob(0, rank)});
    std::vector<Sized> trees;
    enumerate(lattice, open, {1, 1.0}, trees);
    return trees;
}

/// Three requests with small lattices, one of which drafts nothing.
struct SmallBatch {
    std::vector<Lattice> lattices;
    static constexpr int kContext = 64;

    explicit SmallBatch(int seed) {
        std::mt19937 random(seed);
        for (int i = 0; i < 2; ++i) {
            lattices.push_back(seed % 3 == 0 ? test::tied_lattice(random, 2, 2) : test::random_lattice(random, 2, 2));
            for (float& logprob : lattices.back().logprobs) logprob = std::min(logprob, -0.05f);
        }
    }

    double rate(const LatencyModel& model, int a, int b, double surrogate) const {
        PassLoad load(a, kContext);
        load.add(b, kContext);
        load.add(1, kContext);
        return surrogate / (model.draft_ms(2) + model.aux_ms(2) + model.verify_ms(load));
    }

    double best_rate(const LatencyModel& model) const {
        double best = 0;
        for (const Sized& a : all_trees(lattices[0])) {
            for (const Sized& b : all_trees(lattices[1])) {
                best = std::max(best, rate(model, a.nodes, b.nodes, a.surrogate + b.surrogate + 1));
            }
        }
        return best;
    }

    double searched_rate(const LatencyModel& model) const {
        std::vector<TreeBuilder> builders;
        for (const Lattice& lattice : lattices) builders.emplace_back(lattice, 0);
        BudgetSearch search(model, std::vector<PassPart>(3, {kContext, 1}), 2, 3.0, 64);
        const std::vector<int> nodes = grow_together(builders, search, 64);
        EXPECT_EQ(nodes[0] + nodes[1] + 1, search.best_nodes());
        const double surrogate = builders[0].take(nodes[0]).surrogate + builders[1].take(nodes[1]).surrogate + 1;
        return rate(model, nodes[0], nodes[1], surrogate);
    }
};

TEST(GrowTogether, FindsTheBestOfAllTreesForAnyCost) {
    for (int seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        Profile profile = cheap_profile();
        profile.draft_more_ms = 0.25;
        profile.grid.clear();
        double ms = 2;
        for (int nodes = 1; nodes <= 20; ++nodes) {
            profile.grid.push_back({nodes, 64, ms});
            ms += random() % 4 == 0 ? 1.5 : 0.02;
        }
        const LatencyModel model(profile, ControllerKind::curve);
        const SmallBatch batch(seed);
        EXPECT_NEAR(batch.searched_rate(model), batch.best_rate(model), 1e-12) << "seed " << seed;
    }
}

TEST(GrowTogether, FirstDecreaseIsTheBestOfAllTreesWhereTheCostIsConvex) {
    for (int seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        Profile profile = cheap_profile();
        profile.shape.q_width = profile.shape.kv_width = 1;  // rows of equal cost, whoever they belong to
        profile.fit.a = std::uniform_real_distribution<double>(0.1, 10)(random);
        const LatencyModel model(profile, ControllerKind::fixed_fit);
        const SmallBatch batch(seed);
        EXPECT_NEAR(batch.searched_rate(model), batch.best_rate(model), 1e-4 * batch.best_rate(model))
            << "seed " << seed;
    }
}

TEST(GrowTogether, NodesGoWhereTheyAreWorthMost) {
    const Lattice sure = test::lattice_of({{-0.01f, -5.0f}, {-0.01f, -5.0f}, {-0.01f, -5.0f}});
    const Lattice unsure = test::lattice_of({{-1.5f, -1.6f}, {-1.5f, -1.6f}, {-1.5f, -1.6f}});
    Profile profile = cheap_profile();
    profile.grid = {{1, 64, 5.0}, {2, 64, 5.0}, {5, 64, 5.3}, {64, 64, 400.0}};
    const LatencyModel model(profile, ControllerKind::curve);
    std::vector<TreeBuilder> builders{{unsure, 0}, {sure, 0}};
    BudgetSearch search(model, {{64, 1}, {64, 1}}, 2, 2.0, 64);
    EXPECT_EQ(grow_together(builders, search, 64), (std::vector<int>{1, 4}));
}

TEST(GrowTogether, OfEqualNodesThoseOfTheEarlierRequestComeFirstAndNoTreeExceedsItsLimit) {
    const Lattice lattice = test::lattice_of({{-0.5f, -0.5f}, {-0.5f, -0.5f}});
    Profile profile = cheap_profile();
    profile.grid = {{1, 64, 10.0}, {5, 64, 10.0}, {6, 64, 100.0}};
    const LatencyModel model(profile, ControllerKind::curve);
    const auto grown = [&](int max_nodes) {
        std::vector<TreeBuilder> builders{{lattice, 0}, {lattice, 0}};
        BudgetSearch search(model, {{64, 1}, {64, 1}}, 2, 2.0, max_nodes);
        return grow_together(builders, search, max_nodes);
    };
    EXPECT_EQ(grown(64), (std::vector<int>{3, 2}));
    EXPECT_EQ(grown(2), (std::vector<int>{2, 2}));
    EXPECT_EQ(grown(1), (std::vector<int>{1, 1}));
}

}  // namespace
}  // namespace bastion
