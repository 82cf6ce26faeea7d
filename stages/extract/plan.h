// The plan of a chunk: which samples form which batch, which batches go through the model together (a block) and which
// lie in one shard file. A pure function of the chunk's lengths and the declared parameters, so that a resumed run, any
// number of threads or devices and any weight policy compute the same products and write the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace draftmill {

/// The parameters that a plan depends on; `auto` values are resolved before.
struct PlanParameters {
  std::int64_t batch_tokens = 0;     ///< token budget of a batch; a longer sample goes alone
  std::int64_t block_tokens = 0;     ///< token budget of a block, at least one batch
  std::int64_t shard_bytes = 0;      ///< size at which a shard is cut, at least one batch
  std::int64_t bytes_per_token = 0;  ///< L * H * 2
};

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

/// Packs samples of the given lengths. First-fit-decreasing within a window, batches ordered by their first sample.
/// Fails with kInternal only for parameters that config checking lets not pass.
Result<ChunkPlan> PlanChunk(std::span<const std::int64_t> cu_seqlens, const PlanParameters& parameters);

}  // namespace draftmill
