#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "pipeline/flow/byte_queue.h"
#include "pipeline/flow/credit_ledger.h"
#include "pipeline/progress/format_units.h"
#include "pipeline/progress/stop_signal.h"

namespace draftmill {
namespace {

TEST(CreditLedgerTest, KeepsTheBudgetAndLetsALargeItemPassAlone) {
  CreditLedger ledger(100);
  EXPECT_TRUE(ledger.TryTake(60));
  EXPECT_FALSE(ledger.TryTake(50));
  EXPECT_TRUE(ledger.TryTake(40));
  ledger.Return(60);
  EXPECT_FALSE(ledger.TryTake(500));
  ledger.Return(40);
  EXPECT_TRUE(ledger.TryTake(500));
  EXPECT_FALSE(ledger.TryTake(1));
  EXPECT_EQ(ledger.peak_bytes(), 500);
}

TEST(ByteQueueTest, BlocksTheProducerUntilThereIsRoom) {
  ByteQueue<int> queue(10);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(queue.Push(i, 4));
    queue.Close();
  });
  for (int i = 0; i < 100; ++i) {
    const std::optional<int> item = queue.Pop();
    ASSERT_TRUE(item.has_value());
    EXPECT_EQ(*item, i);
  }
  producer.join();
  EXPECT_FALSE(queue.Pop().has_value());
  EXPECT_LE(queue.peak_bytes(), 10);
  EXPECT_FALSE(queue.Push(1, 1));
}

TEST(StopSignalTest, RemembersTheFirstSignal) {
  const StopSignal signals;
  EXPECT_FALSE(StopSignal::Requested());
  std::raise(SIGTERM);
  EXPECT_TRUE(StopSignal::Requested());
  EXPECT_EQ(StopSignal::Name(), "SIGTERM");
}

TEST(StopSignalDeathTest, ASecondSignalEndsAtOnceWith75) {
  EXPECT_EXIT(
      {
        const StopSignal signals;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(75), "");
}

TEST(FormatUnitsTest, WritesForPeople) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatSeconds(3.21), "3.2 s");
  EXPECT_EQ(FormatSeconds(725), "12 m 05 s");
  EXPECT_EQ(FormatSeconds(11220), "3 h 07 m");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123), "-123");
}

}  // namespace
}  // namespace draftmill
