// Threads for the kernels of our own. ggml's barriers spin until every thread has arrived, so one core taken by another
// process stalls the whole pass; here work is cut into chunks that whichever thread is running takes. Each thread
// begins with a stretch of its own, because what lies next to what it had is on its way from memory already.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/isa.h"

namespace bastion::kernels {

/// Rows of light work (a norm, a rotation) that one thread takes: fewer take less time than waking another thread.
inline constexpr std::int64_t kRowsAtOnce = 8;

/// A fixed set of threads, the caller's included. One `run` at a time; not reentrant.
class ThreadPool {
 public:
    /// As many threads as the system gives, at most `threads`. `isa`: what the kernels that run on them may use, of
    /// what the processor has.
    explicit ThreadPool(int threads, Isa isa = best_isa());
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }
    Isa isa() const { return isa_; }

    /// Calls work(begin, end) until [0, count) is covered, in chunks of `grain` >= 1 items, on all threads; returns
    /// when every call has. Of n chunks thread t begins with those from n t / threads() up to n (t + 1) / threads(), in
    /// order, and then takes what others have left. Which thread takes which chunk must not matter to the result.
    template <class Work>
    void run(std::int64_t count, std::int64_t grain, const Work& work) {
        if (count <= grain || workers_.empty()) {
            if (count > 0) work(std::int64_t{0}, count);
            return;
        }
        start({[](const void* w, std::int64_t begin, std::int64_t end) { (*static_cast<const Work*>(w))(begin, end); },
               &work, count, grain});
    }

    /// A grain that gives every thread a few chunks of at least `smallest` items.
    std::int64_t grain(std::int64_t count, std::int64_t smallest) const;

 private:
    struct Job {
        void (*call)(const void* work, std::int64_t begin, std::int64_t end) = nullptr;
        const void* work = nullptr;
        std::int64_t count = 0, grain = 1;
    };

    /// Chunks from `next` on, before `end`, that nobody has taken.
    struct alignas(64) Stretch {
        std::atomic<std::int64_t> next{0};
        std::int64_t end = 0;
    };

    void start(const Job& job);
    // Threads count from 0, the caller of `run`.
    void take_chunks(int thread);
    void worker_loop(int thread);

    const Isa isa_;
    // A worker announces itself in `active_` before it looks at `open_`; the caller closes the job before it waits for
    // `active_` to fall to 0. So no worker reads `job_` or `stretches_` while they are replaced.
    Job job_;
    std::vector<Stretch> stretches_;  ///< by thread; the first threads() are used
    std::atomic<bool> open_{false};
    std::atomic<int> active_{0};
    std::atomic<std::uint32_t> generation_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> workers_;
};

}  // namespace bastion::kernels
