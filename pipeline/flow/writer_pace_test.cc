#include "pipeline/flow/writer_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::HasSubstr;

TEST(WriterPaceTest, AWriterThatNeverRestsWhileTheEngineWaitsIsSlower) {
  WriterPace pace(10);
  std::optional<WriterSpan> span;
  for (int batch = 1; !span; ++batch) {
    ASSERT_LE(batch, 11);
    pace.EngineWaited(0.4);
    span = pace.Wrote(100 + batch, 1.0, 1'000'000'000);
  }
  EXPECT_DOUBLE_EQ(span->seconds, 10);
  EXPECT_NEAR(span->engine_waited, 4.0, 1e-9);
  EXPECT_TRUE(span->disk_is_slower());
  EXPECT_THAT(Describe(*span), HasSubstr("in the last 10 s the engine waited 4 s for the disk, which took 1.00 GB/s"));
  // The next span begins anew.
  EXPECT_FALSE(pace.Wrote(111, 1.0, 1).has_value());
}

TEST(WriterPaceTest, StatesThatComeTogetherAreNoSlowDisk) {
  WriterPace pace(10);
  std::optional<WriterSpan> span;
  // Four batches at the end of each block: three wait for the one before them, then the writer rests.
  for (double now = 0; !span; now += 10) {
    for (int batch = 1; batch <= 4 && !span; ++batch) {
      if (batch > 1) pace.EngineWaited(1);
      span = pace.Wrote(now + batch, 1.0, 1);
    }
  }
  EXPECT_GT(span->engine_waited, 0.1 * span->seconds);
  EXPECT_FALSE(span->disk_is_slower());
}

TEST(WriterPaceTest, AWriterThatIsBusyWhileNobodyWaitsKeepsUp) {
  WriterPace pace(10);
  std::optional<WriterSpan> span;
  for (int batch = 1; !span; ++batch) span = pace.Wrote(batch, 0.99, 1);
  EXPECT_FALSE(span->disk_is_slower());
}

}  // namespace
}  // namespace draftmill
