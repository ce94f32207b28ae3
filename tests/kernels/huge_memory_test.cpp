#include "kernels/huge_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace bastion::kernels {
namespace {

TEST(HugeMemory, GivesZeroedPiecesThatDoNotOverlap) {
    HugeMemory memory;
    struct Piece {
        std::uint8_t* begin;
        std::size_t bytes;
        std::uint8_t mark;
    };
    std::vector<Piece> pieces;
    // Small ones, what is larger than a chunk, and what no longer fits into the last.
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{100}, std::size_t{70} << 20,
                                    std::size_t{40} << 20, std::size_t{30} << 20, std::size_t{5}}) {
        std::uint8_t* piece = memory.take(bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 64, 0u);
        for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(piece[at], 0);
        const auto mark = static_cast<std::uint8_t>(pieces.size() + 1);
        piece[0] = piece[bytes / 2] = piece[bytes - 1] = mark;
        pieces.push_back({piece, bytes, mark});
    }
    for (const Piece& p : pieces) {
        EXPECT_TRUE(p.begin[0] == p.mark && p.begin[p.bytes / 2] == p.mark && p.begin[p.bytes - 1] == p.mark);
        for (const Piece& q : pieces)
            EXPECT_TRUE(&p == &q || p.begin + p.bytes <= q.begin || q.begin + q.bytes <= p.begin);
    }
}

}  // namespace
}  // namespace bastion::kernels
