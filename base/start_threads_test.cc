#include "base/start_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace draftmill {
namespace {

TEST(StartThreadsTest, StartsAllInOrder) {
  std::atomic<int> sum = 0;
  std::vector<std::size_t> order;
  std::vector<std::thread> threads = StartThreads(4, [&](std::size_t i) {
    order.push_back(i);
    return std::thread([&sum, i] { sum += 1 << i; });
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_EQ(sum, 15);
}

TEST(StartThreadsTest, WhatWasStartedGoesOnWhereTheSystemGivesNoMore) {
  std::atomic<int> done = 0;
  std::vector<std::thread> threads = StartThreads(5, [&](std::size_t i) {
    if (i == 2) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::thread([&done] { ++done; });
  });
  ASSERT_EQ(threads.size(), 2U);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 2);
}

TEST(StartThreadTest, RunsTheBody) {
  std::atomic<int> ran = 0;
  Result<std::thread> thread = StartThread([&] { ++ran; });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(CheckThatThreadsStart(3).ok());
}

/// Leaves this process addresses for the stacks of two threads and no third. It does not get out of this again.
void LeaveRoomForTwoStacks() {
  constexpr rlim_t kStack = rlim_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
  std::FILE* const sizes = std::fopen("/proc/self/statm", "r");
  long long pages = 0;
  if (sizes == nullptr || std::fscanf(sizes, "%lld", &pages) != 1) std::abort();
  std::fclose(sizes);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(pages) * 4096 + 5 * kStack / 2;
  setrlimit(RLIMIT_AS, &limit);
}

TEST(StartThreadsDeathTest, AMachineThatGivesNoMoreThreadsIsAStatus) {
  EXPECT_EXIT(
      {
        LeaveRoomForTwoStacks();
        const Status status = CheckThatThreadsStart(8);
        std::atomic<bool> may_end = false;
        std::vector<std::thread> threads = StartThreads(8, [&](std::size_t) {
          return std::thread([&] {
            while (!may_end) std::this_thread::yield();
          });
        });
        may_end = true;
        for (std::thread& thread : threads) thread.join();
        std::fprintf(stderr, "%s; %zu started", status.ToString().c_str(), threads.size());
        std::_Exit(status.code() == StatusCode::kIo && threads.size() < 8 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "gives no further thread.*lower limits.threads.*[12] started");
}

}  // namespace
}  // namespace draftmill
