#include "stages/extract/auto_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

ModelDescription Model() {
  ModelDescription model;
  model.memory = {.resident_bytes = 1000000, .shared_bytes = 1000, .thread_bytes = 100, .token_bytes = 10};
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
    if (!sizes.ok()) break;
    EXPECT_LE(sizes->block_tokens, last);
    EXPECT_LE(sizes->batch_tokens, sizes->block_tokens);
    EXPECT_LE(ExtractBytes(Model(), Limit(limit), sizes->block_tokens), limit);
    last = sizes->block_tokens;
  }
  EXPECT_LT(last, 4096);
}

TEST(AutoSizes, AModelThatDoesNotFitNamesTheLimit) {
  const auto sizes = ResolveAuto(Model(), Limit(1000));
  ASSERT_FALSE(sizes.ok());
  EXPECT_EQ(sizes.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(sizes.status().message(), ::testing::HasSubstr("limits.memory"));
}

}  // namespace
}  // namespace draftmill
