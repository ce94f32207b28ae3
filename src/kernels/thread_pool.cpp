#include "kernels/thread_pool.h"

#include <algorithm>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bastion::kernels {
namespace {

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Between two kernels of a pass there are a few microseconds; between two passes there may be many milliseconds.
constexpr int kSpinsBeforeSleep = 4000;
constexpr int kSpinsBeforeYield = 200;

}  // namespace

ThreadPool::ThreadPool(int threads, Isa isa) : isa_(std::min(isa, best_isa())), stretches_(std::max(threads, 1)) {
    try {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
    } catch (const std::system_error&) {
        // The system gives no more threads: those that started, at least the caller's, do the work.
    }
}

ThreadPool::~ThreadPool() {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& t : workers_) t.join();
}

std::int64_t ThreadPool::grain(std::int64_t count, std::int64_t smallest) const {
    constexpr std::int64_t kChunksPerThread = 4;
    return std::max(smallest, count / (threads() * kChunksPerThread));
}

void ThreadPool::take_chunks(int thread) {
    for (int i = 0; i < threads(); ++i) {
        Stretch& stretch = stretches_[(thread + i) % threads()];
        // Looking costs other threads nothing where nothing is left.
        while (stretch.next.load(std::memory_order_relaxed) < stretch.end) {
            const std::int64_t begin = stretch.next.fetch_add(job_.grain);
            if (begin >= stretch.end) break;
            job_.call(job_.work, begin, std::min(begin + job_.grain, stretch.end));
        }
    }
}

void ThreadPool::start(const Job& job) {
    job_ = job;
    const std::int64_t chunks = (job.count + job.grain - 1) / job.grain;
    for (int t = 0; t < threads(); ++t) {
        stretches_[t].next = chunks * t / threads() * job.grain;
        stretches_[t].end = std::min(chunks * (t + 1) / threads() * job.grain, job.count);
    }
    open_ = true;
    generation_.fetch_add(1);
    if (sleepers_.load() > 0) generation_.notify_all();
    take_chunks(0);
    open_ = false;
    for (int spins = 0; active_.load() != 0; ++spins) {
        if (spins < kSpinsBeforeYield) {
            relax();
        } else {
            std::this_thread::yield();
        }
    }
}

void ThreadPool::worker_loop(int thread) {
    std::uint32_t seen = 0;
    while (!stop_) {
        for (int spins = 0; generation_.load() == seen && spins < kSpinsBeforeSleep; ++spins) relax();
        if (generation_.load() == seen) {
            sleepers_.fetch_add(1);
            generation_.wait(seen);
            sleepers_.fetch_sub(1);
        }
        seen = generation_.load();
        active_.fetch_add(1);
        if (open_.load()) take_chunks(thread);
        active_.fetch_sub(1);
    }
}

}  // namespace bastion::kernels
