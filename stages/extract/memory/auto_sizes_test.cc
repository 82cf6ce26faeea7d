#include "stages/extract/memory/auto_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

ModelDescription Model() {
  ModelDescription model;
  model.memory = {.resident_bytes = 1000000,
                  .layer_bytes = 50000,
                  .reading_bytes = 2000,
                  .shared_bytes = 1000,
                  .thread_bytes = 100,
                  .token_bytes = 10};
  return model;
}

ExtractOptions Limit(std::int64_t memory_bytes) {
  ExtractOptions options;
  options.threads = 2;
  options.memory_bytes = memory_bytes;
  return options;
}

TEST(AutoSizes, ShrinkWithTheLimit) {
  EXPECT_EQ(ResolveAuto(Model(), Limit(0))->block_tokens, 16384);
  std::int64_t last = 16384;
  for (std::int64_t limit = 1200000; limit > 1011500; limit -= 10000) {
    const auto sizes = ResolveAuto(Model(), Limit(limit));
    ASSERT_TRUE(sizes.ok());
    if (PlanWeights(Model(), Limit(limit)).policy == WeightPolicy::kStreamed) break;
    EXPECT_LE(sizes->block_tokens, last);
    EXPECT_LE(sizes->batch_tokens, sizes->block_tokens);
    EXPECT_LE(ExtractBytes(Model(), Limit(limit), sizes->block_tokens), limit);
    last = sizes->block_tokens;
  }
  EXPECT_LT(last, 4096);
}

TEST(AutoSizes, WhatDoesNotFitIsStreamedInLargerBlocks) {
  const ExtractOptions limit = Limit(900000);
  EXPECT_EQ(PlanWeights(Model(), limit).policy, WeightPolicy::kStreamed);
  EXPECT_EQ(PlanWeights(Model(), limit).slots, 3);
  EXPECT_EQ(ResolveAuto(Model(), limit)->block_tokens, 65536);
  EXPECT_LE(ExtractBytes(Model(), limit, 65536), 900000);
}

TEST(AutoSizes, ReadingAheadIsGivenUpBeforeTheRun) {
  const ExtractOptions limit = Limit(150000);
  EXPECT_EQ(PlanWeights(Model(), limit).slots, 2);
  EXPECT_LE(ExtractBytes(Model(), limit, ResolveAuto(Model(), limit)->block_tokens), 150000);
}

TEST(AutoSizes, ResidentIsKeptWhereItIsAskedFor) {
  ExtractOptions options = Limit(900000);
  options.weights = "resident";
  const auto sizes = ResolveAuto(Model(), options);
  ASSERT_FALSE(sizes.ok());
  EXPECT_THAT(sizes.status().message(), ::testing::HasSubstr("extract.weights"));
}

TEST(AutoSizes, AModelThatDoesNotFitNamesTheLimit) {
  const auto sizes = ResolveAuto(Model(), Limit(1000));
  ASSERT_FALSE(sizes.ok());
  EXPECT_EQ(sizes.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(sizes.status().message(), ::testing::HasSubstr("limits.memory"));
}

}  // namespace
}  // namespace draftmill
