#include "state/quota.h"

#include <gtest/gtest.h>

#include "state/file_system.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

TEST(QuotaTest, TheLowerLimitCounts) {
  EXPECT_FALSE(LeftUnder({.used_bytes = 5}).has_value());
  EXPECT_EQ(LeftUnder({.hard_limit_bytes = 100, .used_bytes = 30}), 70);
  EXPECT_EQ(LeftUnder({.soft_limit_bytes = 50, .used_bytes = 30}), 20);
  EXPECT_EQ(LeftUnder({.hard_limit_bytes = 100, .soft_limit_bytes = 50, .used_bytes = 30}), 20);
  EXPECT_EQ(LeftUnder({.hard_limit_bytes = 100, .soft_limit_bytes = 50, .used_bytes = 130}), 0);
}

TEST(QuotaTest, ADiskTellsNoMoreThanItsQuotaLeaves) {
  const TemporaryFolder folder;
  const Result<DiskSpace> space = RealFileSystem().Space(folder.path());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->free_bytes, 0);
  EXPECT_LE(space->free_bytes, QuotaLeft(folder.path()).value_or(space->free_bytes));
  EXPECT_FALSE(QuotaLeft(folder.path() + "/absent").has_value());
}

}  // namespace
}  // namespace draftmill
