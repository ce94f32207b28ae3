#include "base/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace bastion {
namespace {

using Counter = std::array<std::uint32_t, 4>;

// Known answers of philox4x32-10 from the Random123 distribution (tests/kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, StaysInTheHalfOpenUnitIntervalAndIsEvenlySpread) {
    int below[10] = {};
    for (std::uint64_t position = 0; position < 100000; ++position) {
        const double u = uniform_at(42, 0, position);
        ASSERT_GE(u, 0.0);
        ASSERT_LT(u, 1.0);
        ++below[static_cast<int>(10 * u)];
    }
    for (const int count : below) EXPECT_NEAR(count, 10000, 500);
}

TEST(Uniform, EveryArgumentMatters) {
    const std::uint64_t high = 1ull << 40;
    const std::set<double> draws = {uniform_at(1, 0, 5), uniform_at(2, 0, 5), uniform_at(1 + high, 0, 5),
                                    uniform_at(1, 1, 5), uniform_at(1, 0, 6), uniform_at(1, 0, 5 + high)};
    EXPECT_EQ(draws.size(), 6u);
    EXPECT_EQ(uniform_at(1, 0, 5), uniform_at(1, 0, 5));
}

}  // namespace
}  // namespace bastion
