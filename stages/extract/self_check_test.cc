#include "stages/extract/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SelfCheck, PositionsHaveASupervisedNextTokenAndOneMore) {
  //                                 sample 0        sample 1     sample 2
  const std::vector<std::uint8_t> mask{0, 1, 1, 1, 1, 1, 0, 0, 1, 0};
  const std::vector<std::int64_t> bounds{0, 4, 6, 10};
  EXPECT_THAT(CheckedPositions(mask, bounds, 100), ElementsAre(0, 1, 7));
  EXPECT_THAT(CheckedPositions(mask, bounds, 2), ElementsAre(0, 1));
  EXPECT_THAT(CheckedPositions({}, std::vector<std::int64_t>{0}, 2), IsEmpty());
}

TEST(SelfCheck, PositionsAreSpreadOverTheBatch) {
  const std::vector<std::uint8_t> mask(1000, 1);
  const std::vector<std::int64_t> bounds{0, 1000};
  EXPECT_THAT(CheckedPositions(mask, bounds, 4), ElementsAre(0, 249, 499, 748));
}

TEST(SelfCheck, TheRightReadingMustBeatEveryWrongOne) {
  EXPECT_TRUE((HeadAgreement{100, 60, 5, 3, 20, 30}.IsClear()));
  for (int wrong = 0; wrong < 4; ++wrong) {
    HeadAgreement agreement{100, 60, 5, 3, 20, 30};
    (wrong == 0   ? agreement.one_early
     : wrong == 1 ? agreement.one_late
     : wrong == 2 ? agreement.without_norm
                  : agreement.normed_twice) = 58;
    EXPECT_FALSE(agreement.IsClear()) << wrong;
  }
  EXPECT_FALSE(HeadAgreement{}.IsClear());
  EXPECT_FALSE((HeadAgreement{10, 2, 0, 0, 0, 0}.IsClear())) << "two hits are chance";
}

TEST(SelfCheck, NormsOutsideTheBandAreFound) {
  const std::vector<double> first{10, 20, 30};
  EXPECT_EQ(LayerOutsideBand({12, 18, 33}, first), -1);
  EXPECT_EQ(LayerOutsideBand({12, 81, 33}, first), 1);
  EXPECT_EQ(LayerOutsideBand({2.4, 20, 30}, first), 0);
}

}  // namespace
}  // namespace draftmill
