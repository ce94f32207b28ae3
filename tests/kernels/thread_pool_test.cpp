#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace bastion::kernels {
namespace {

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, CoverEveryItemExactlyOnce) {
    ThreadPool pool(GetParam());
    for (const std::int64_t count : {0, 1, 2, 7, 16, 1000}) {
        for (const std::int64_t grain : {1, 3, 16, 5000}) {
            const std::unique_ptr<std::atomic<int>[]> visits(new std::atomic<int>[count + 1]());
            pool.run(count, grain, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) ++visits[i];
            });
            for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(visits[i], 1) << "item " << i << " of " << count;
        }
    }
}

// A late worker must never touch a job that is over: its data is gone by then.
TEST_P(Threads, KeepShortJobsApart) {
    ThreadPool pool(GetParam());
    for (int job = 0; job < 20000; ++job) {
        std::vector<int> seen(4, -1);
        pool.run(4, 1, [&seen, job](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) seen[i] = job;
        });
        ASSERT_EQ(seen, std::vector<int>(4, job));
    }
}

TEST_P(Threads, SeeWhatWasWrittenBeforeTheRun) {
    ThreadPool pool(GetParam());
    std::vector<std::int64_t> data(256, 1);
    for (int round = 0; round < 200; ++round) {
        pool.run(256, 8, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) data[i] += data[i];
        });
        for (std::int64_t& value : data) value = value % 1000003 + 1;
    }
    for (std::int64_t value : data) EXPECT_EQ(value, data.front());
}

INSTANTIATE_TEST_SUITE_P(Pool, Threads, testing::Values(1, 2, 3, 8));

// Threads begin with stretches of their own; what one that is held up leaves, others take.
TEST(ThreadPool, TakesTheChunksOfAThreadThatIsHeldUp) {
    for (const int threads : {2, 3, 8}) {
        ThreadPool pool(threads);
        ASSERT_EQ(pool.threads(), threads);
        std::atomic<int> done{0};
        pool.run(64, 1, [&](std::int64_t begin, std::int64_t) {
            while (begin == 0 && done < 63) std::this_thread::yield();
            ++done;
        });
        EXPECT_EQ(done, 64);
    }
}

}  // namespace
}  // namespace bastion::kernels
