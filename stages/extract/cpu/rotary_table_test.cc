#include "stages/extract/cpu/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/bfloat16.h"

namespace draftmill {
namespace {

TEST(RotaryTable, CosAndSinAreCastAsTheModelCastsThem) {
  RopeConfig rope;
  rope.rotary_dims = 8;
  rope.cos_sin_factor = 1.25;
  RotaryTable exact(rope, false);
  RotaryTable cast(rope, true);
  exact.Grow(50);
  cast.Grow(50);
  int rounded = 0;
  for (int i = 0; i < 50 * 4; ++i) {
    const double angle = std::pow(10000.0, -(i % 4) / 4.0) * (i / 4);
    EXPECT_NEAR(exact.cosines()[i], 1.25 * std::cos(angle), 1e-5);
    EXPECT_NEAR(exact.sines()[i], 1.25 * std::sin(angle), 1e-5);
    EXPECT_EQ(cast.cosines()[i], RoundToBf16(exact.cosines()[i]));
    EXPECT_EQ(cast.sines()[i], RoundToBf16(exact.sines()[i]));
    rounded += cast.cosines()[i] != exact.cosines()[i] ? 1 : 0;
  }
  EXPECT_GT(rounded, 100) << "a cast that changes nothing is not seen";
}

TEST(RotaryTable, LongropeChoosesByTheSequence) {
  RopeConfig rope;
  rope.type = RopeType::kLongRope;
  rope.rotary_dims = 4;
  rope.original_max_positions = 10;
  rope.short_factors = {1, 1};
  rope.long_factors = {4, 8};
  RotaryTable table(rope, false);
  table.Grow(10);
  EXPECT_EQ(table.Row(9, 10), 9);
  table.Grow(11);
  table.Grow(5);
  const auto cosine = [&](std::int64_t position, std::int64_t tokens) {
    return table.cosines()[table.Row(position, tokens) * 2];
  };
  EXPECT_FLOAT_EQ(cosine(3, 10), std::cos(3.0F));
  EXPECT_FLOAT_EQ(cosine(3, 11), std::cos(3.0F / 4));
  EXPECT_FLOAT_EQ(cosine(10, 11), std::cos(10.0F / 4));
}

TEST(RotaryTable, OtherTypesHaveOneRowForAPosition) {
  RopeConfig rope;
  rope.type = RopeType::kLinear;
  rope.rotary_dims = 4;
  rope.factor = 2;
  RotaryTable table(rope, false);
  table.Grow(1000);
  EXPECT_EQ(table.Row(500, 600), 500);
  EXPECT_EQ(table.Row(500, 1000), 500);
  EXPECT_FLOAT_EQ(table.cosines()[3 * 2], std::cos(1.5F));
}

}  // namespace
}  // namespace draftmill
