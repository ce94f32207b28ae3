#include "kernels/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace bastion::kernels {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kChunk = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void prefer_large_pages([[maybe_unused]] void* begin, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::uintptr_t first = round_up(address, kLargePage), last = (address + bytes) / kLargePage * kLargePage;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

HugeMemory::~HugeMemory() {
    for (const Chunk& chunk : chunks_) ::munmap(chunk.begin, chunk.bytes);
}

std::uint8_t* HugeMemory::take(std::size_t bytes) {
    bytes = round_up(bytes, kLine);
    if (bytes > left_) {
        // One large page more, so that the chunk can begin with one.
        const std::size_t size = std::max(round_up(bytes, kLargePage), kChunk) + kLargePage;
        void* begin = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (begin == MAP_FAILED) throw std::bad_alloc();
        chunks_.push_back({begin, size});
        const auto address = reinterpret_cast<std::uintptr_t>(begin);
        next_ = reinterpret_cast<std::uint8_t*>(round_up(address, kLargePage));
        left_ = size - kLargePage;
        prefer_large_pages(next_, left_);
    }
    std::uint8_t* piece = next_;
    next_ += bytes;
    left_ -= bytes;
    return piece;
}

}  // namespace bastion::kernels
