// The plan of a chunk, which says what stands where in its shards. It is made by stages/extract/plan.h. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace draftmill {

/// A half-open range of indices.
struct PlanRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const PlanRange&, const PlanRange&) = default;
};

/// Samples are named by their index in the chunk (0..N-1, TokenizedChunk's order).
struct ChunkPlan {
  std::vector<std::int64_t> order;         ///< [N] sample indices in the order in which they are packed and stored
  std::vector<PlanRange> batches;          ///< ranges of `order`
  std::vector<PlanRange> blocks;           ///< ranges of `batches`; the batches of a block may lie in several shards
  std::vector<PlanRange> shards;           ///< ranges of `batches`
  std::vector<std::int64_t> batch_tokens;  ///< [batches] tokens of each batch
  Hash128 plan_hash;                       ///< over the parameters, the lengths, order and all ranges
};

}  // namespace draftmill
