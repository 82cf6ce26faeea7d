#include "base/start_threads.h"

#include <gtest/gtest.h>

#include <atomic>

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

}  // namespace
}  // namespace draftmill
