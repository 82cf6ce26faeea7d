// A plan and a convention for ExampleChunk, for tests of what reads and writes shards.
#pragma once

#include <vector>

#include "formats/chunk_plan.h"
#include "formats/shard.h"
#include "formats/tokenized_chunk_example.h"

namespace draftmill {

/// Six samples of 3, 1, 5, 2, 4 and 2 tokens.
inline TokenizedChunk ExampleShardChunk() { return ExampleChunk(12, {3, 1, 5, 2, 4, 2}); }

/// Its plan: batches {0, 3}, {1, 4}, {2}, {5}; shard 0 holds the first three, shard 1 the last.
inline ChunkPlan ExamplePlan() {
  ChunkPlan plan;
  plan.order = {0, 3, 1, 4, 2, 5};
  plan.batches = {{0, 2}, {2, 2}, {4, 1}, {5, 1}};
  plan.blocks = {{0, 2}, {2, 1}, {3, 1}};
  plan.shards = {{0, 3}, {3, 1}};
  plan.batch_tokens = {5, 5, 5, 2};
  plan.plan_hash = HashBytes128("plan");
  return plan;
}

/// Two layers of hidden size 4: 16 bytes of states a token.
inline ShardConvention ExampleConvention() {
  return {.layers = {2, 5},
          .num_layers = 5,
          .hidden_size = 4,
          .extract_fingerprint = "e1",
          .model_fingerprint = "m1",
          .tokenizer_fingerprint = "t1",
          .template_fingerprint = "c1",
          .mask_rule = "all_assistant_turns",
          .numerics_environment = "test"};
}

}  // namespace draftmill
