#include "stages/extract/device/device_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenizedChunk ThreeSamples() {
  TokenizedChunk chunk;
  chunk.chunk = 4;
  chunk.input_ids = {10, 11, 12, 20, 30, 31};
  chunk.loss_mask = {0, 1, 1, 1, 0, 1};
  chunk.cu_seqlens = {0, 3, 4, 6};
  chunk.sample_id = {7, 8, 9};
  chunk.variant = {0, 0, 2};
  return chunk;
}

ChunkPlan OneBatch() {
  ChunkPlan plan;
  plan.order = {0, 2, 1};
  plan.batches = {{0, 3}};
  plan.batch_tokens = {6};
  return plan;
}

TEST(DeviceBatchTest, SamplesLieInTheOrderOfThePlan) {
  const TokenizedChunk chunk = ThreeSamples();
  const DeviceBatch batch = PackDeviceBatch(chunk, OneBatch(), 0, 100).value();
  EXPECT_THAT(batch.input_ids, ElementsAre(10, 11, 12, 30, 31, 20));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 0));
  EXPECT_THAT(batch.sample, ElementsAre(0, 0, 0, 1, 1, 2));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 3, 5, 6));
  EXPECT_EQ(batch.longest, 3);
  EXPECT_EQ(batch.rows(), kRowMultiple);
  EXPECT_EQ(batch.states.chunk, 4);
  EXPECT_EQ(batch.states.keys[1], (SampleKey{9, 2}));
  EXPECT_EQ(batch.states.token_hashes[1], TokenHash(&chunk.input_ids[4], &chunk.loss_mask[4], 2));
}

TEST(DeviceBatchTest, ATokenBeyondTheEmbeddingIsRefusedBySample) {
  const Status status = PackDeviceBatch(ThreeSamples(), OneBatch(), 0, 31).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("sample 9/2: token id 31 at position 1"));
}

}  // namespace
}  // namespace draftmill
