#include "budget/roofline.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "profiles.h"

namespace bastion {
namespace {

std::map<std::string, CostTerm> terms(const ModelShape& shape, int rows, int context) {
    std::map<std::string, CostTerm> by_name;
    for (const CostTerm& term : cost_terms(shape, rows, context)) by_name[term.name] = term;
    return by_name;
}

/// Small primes, so that every factor of a product shows.
ModelShape prime_shape() {
    ModelShape shape;
    shape.layers = 2;
    shape.hidden = 3;
    shape.q_width = 5;
    shape.kv_width = 7;
    shape.ffn_width = 11;
    shape.vocab = 13;
    shape.attn_weight_bytes = 0.5;
    shape.ffn_weight_bytes = 0.25;
    shape.router_weight_bytes = 8;
    shape.head_weight_bytes = 0.75;
    shape.embed_weight_bytes = 1.5;
    shape.kv_bytes = 2;
    shape.activation_bytes = 4;
    return shape;
}

TEST(Roofline, CountsADenseModelByHand) {
    auto t = terms(prime_shape(), 17, 19);
    ASSERT_EQ(t.size(), 6u);
    EXPECT_DOUBLE_EQ(t["qo"].flops, 2.0 * 4 * 17 * 3 * 5);
    EXPECT_DOUBLE_EQ(t["qo"].bytes, 2.0 * (2 * 3 * 5 * 0.5 + 17 * (6 + 10) * 4));
    EXPECT_DOUBLE_EQ(t["kv"].flops, 2.0 * 4 * 17 * 3 * 7);
    EXPECT_DOUBLE_EQ(t["kv"].bytes, 2.0 * (2 * 3 * 7 * 0.5 + 17 * (3 + 14) * 4));
    EXPECT_DOUBLE_EQ(t["attention"].flops, 2.0 * 4 * 17 * (19 + 17) * 5);
    EXPECT_DOUBLE_EQ(t["attention"].bytes, 2.0 * (2 * (19 + 17) * 7 + 2 * 17 * 7) * 2);
    EXPECT_DOUBLE_EQ(t["ffn"].flops, 2.0 * 6 * 17 * 3 * 11);
    EXPECT_DOUBLE_EQ(t["ffn"].bytes, 2.0 * (3 * 3 * 11 * 0.25 + 17 * (6 + 33) * 4));
    EXPECT_DOUBLE_EQ(t["head"].flops, 2.0 * 17 * 3 * 13);
    EXPECT_DOUBLE_EQ(t["head"].bytes, 3 * 13 * 0.75 + 17 * (3 + 13) * 4);
    EXPECT_DOUBLE_EQ(t["embed"].flops, 0.0);
    EXPECT_DOUBLE_EQ(t["embed"].bytes, 17 * 3 * 1.5 + 17 * 3 * 4);
}

TEST(Roofline, CountsExpertsByHand) {
    ModelShape shape = prime_shape();
    shape.experts = 23;
    shape.experts_used = 2;
    auto few = terms(shape, 5, 0);
    EXPECT_DOUBLE_EQ(few["ffn"].flops, 2.0 * (2 * 5 * 3 * 23 + 6 * 2 * 5 * 3 * 11));
    EXPECT_DOUBLE_EQ(few["ffn"].bytes, 2.0 * (3 * 23 * 8 + 3 * 3 * 11 * 10 * 0.25 + 5 * (6 + 23 + 66) * 4));
    auto many = terms(shape, 17, 0);
    EXPECT_DOUBLE_EQ(many["ffn"].bytes, 2.0 * (3 * 23 * 8 + 3 * 3 * 11 * 23 * 0.25 + 17 * (6 + 23 + 66) * 4));
}

TEST(Roofline, TouchedExpertsSaturate) {
    ModelShape shape;
    EXPECT_EQ(experts_touched(shape, 4), 0);
    shape.experts = 128;
    shape.experts_used = 8;
    EXPECT_EQ(experts_touched(shape, 1), 8);
    EXPECT_EQ(experts_touched(shape, 16), 128);
    EXPECT_EQ(experts_touched(shape, 17), 128);
    EXPECT_EQ(experts_touched(shape, 2000000000), 128);
}

TEST(Roofline, EveryTermIsBoundByTheSlowerOfComputeAndMemory) {
    const ModelShape shape = prime_shape();
    double flops = 0, bytes = 0, mixed = 0;
    const DevicePeak balanced = {1000, 1500};
    for (const CostTerm& term : cost_terms(shape, 17, 19)) {
        flops += term.flops;
        bytes += term.bytes;
        mixed += std::max(term.flops / 1000, term.bytes / 1500);
    }
    EXPECT_NEAR(roofline_ms(shape, {1000, 1e30}, 17, 19), flops, 1e-9 * flops);
    EXPECT_NEAR(roofline_ms(shape, {1e30, 1000}, 17, 19), bytes, 1e-9 * bytes);
    EXPECT_NEAR(roofline_ms(shape, balanced, 17, 19), 1e3 * mixed, 1e-6 * mixed);
}

TEST(Roofline, GrowsWithRowsAndContext) {
    const Profile profile = test::profile_with();
    for (const int context : {0, 100, 5000}) {
        for (int rows = 1; rows < 100; ++rows) {
            const double here = roofline_ms(profile.shape, profile.peak, rows, context);
            EXPECT_LT(here, roofline_ms(profile.shape, profile.peak, rows + 1, context));
            EXPECT_LT(here, roofline_ms(profile.shape, profile.peak, rows, context + 1000));
        }
    }
}

TEST(Roofline, SeveralRequestsShareWeightsAndAttendToTheirOwn) {
    const ModelShape shape = prime_shape();
    const DevicePeak flops_bound{1, 1e30}, bytes_bound{1e30, 1};
    PassLoad both(3, 10);
    both.add(2, 40);
    // What is not attention is that of five rows, whoever they belong to.
    const auto rest = [&](bool flops) {
        double sum = 0;
        for (const CostTerm& term : cost_terms(shape, 5, 0)) {
            if (std::string(term.name) != "attention") sum += flops ? term.flops : term.bytes;
        }
        return sum;
    };
    const double flops = terms(shape, 3, 10)["attention"].flops + terms(shape, 2, 40)["attention"].flops;
    const double bytes = terms(shape, 3, 10)["attention"].bytes + terms(shape, 2, 40)["attention"].bytes;
    EXPECT_DOUBLE_EQ(roofline_ms(shape, flops_bound, both), 1e3 * (rest(true) + flops));
    EXPECT_DOUBLE_EQ(roofline_ms(shape, bytes_bound, both), 1e3 * (rest(false) + bytes));
}

TEST(Roofline, ARowMoreIsTheSameRequestWithOneMore) {
    PassLoad grown(2, 30), whole(4, 30);
    grown.add_row(2, 30);
    grown.add_row(3, 30);
    for (const auto field : {&PassLoad::rows, &PassLoad::cached, &PassLoad::attended, &PassLoad::own}) {
        EXPECT_EQ(grown.*field, whole.*field);
    }
}

}  // namespace
}  // namespace bastion
