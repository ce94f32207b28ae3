// Memory for weights and caches, in large pages where the system has them: a pass reads all of it once, and with small
// pages a good part of the time goes into finding them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bastion::kernels {

/// Asks for large pages within [begin, begin + bytes), before it is first written to. Where they are refused, small
/// ones serve too.
void prefer_large_pages(void* begin, std::size_t bytes);

/// Hands out pieces of large chunks, which are freed together. Pages that nobody writes take no memory.
class HugeMemory {
 public:
    HugeMemory() = default;
    ~HugeMemory();
    HugeMemory(const HugeMemory&) = delete;
    HugeMemory& operator=(const HugeMemory&) = delete;

    /// Zeros, from the beginning of a cache line on. Throws std::bad_alloc.
    std::uint8_t* take(std::size_t bytes);

 private:
    struct Chunk {
        void* begin;
        std::size_t bytes;
    };
    std::vector<Chunk> chunks_;
    std::uint8_t* next_ = nullptr;
    std::size_t left_ = 0;
};

}  // namespace bastion::kernels
