#include "stages/extract/device/expert_tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace draftmill {
namespace {

constexpr std::int64_t kH200 = 132;

/// The share where each of the experts has `rows` rows.
double ShareOf(std::int64_t experts, std::int64_t rows, std::int64_t hidden, std::int64_t width) {
  std::vector<std::int32_t> starts;
  for (std::int64_t i = 0; i <= experts; ++i) starts.push_back(static_cast<std::int32_t>(i * rows));
  return FilledShare({starts.data(), experts, hidden, width}, kH200);
}

TEST(ExpertTilesTest, ProductsOfManyTurnsFillTheCard) {
  EXPECT_GT(ShareOf(384, 5461, 7168, 2048), 0.87);  // Kimi-K2.5, blocks of 262,144 tokens
  EXPECT_GT(ShareOf(32, 12288, 2880, 2880), 0.97);  // gpt-oss-20b
}

TEST(ExpertTilesTest, SmallExpertsAndSmallBlocksDoNot) {
  EXPECT_LT(ShareOf(128, 512, 2048, 768), kLeastFilledShare);   // Qwen3-30B-A3B, 8,192 tokens
  EXPECT_LT(ShareOf(128, 1024, 2048, 768), kLeastFilledShare);  // 16,384
  EXPECT_LT(ShareOf(128, 4096, 2048, 768), 0.8);                // 65,536: one and a half turns
  EXPECT_GT(ShareOf(128, 16384, 2048, 768), kLeastFilledShare);
}

TEST(ExpertTilesTest, CountsTurnsByWhatTheyCost) {
  // One tile of 132 for [rows, 512] x [512, 256], and two for [rows, 128] x [128, 512].
  const std::vector<std::int32_t> starts{0, 100};
  EXPECT_DOUBLE_EQ(FilledShare({starts.data(), 1, 512, 128}, kH200), (1.0 * 512 + 2.0 * 128) / (132.0 * (512 + 128)));
}

TEST(ExpertTilesTest, NothingToDoIsNoWaste) { EXPECT_EQ(ShareOf(8, 0, 64, 64), 1.0); }

}  // namespace
}  // namespace draftmill
