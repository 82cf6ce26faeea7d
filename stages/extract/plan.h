// Makes the plan of a chunk (formats/chunk_plan.h): which samples form which batch, which batches go through the model
// together (a block) and which lie in one shard file. A pure function of the chunk's lengths and the declared
// parameters, so that a resumed run, any number of threads or devices and any weight policy compute the same products
// and write the same bytes.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/chunk_plan.h"

namespace draftmill {

/// The parameters that a plan depends on; `auto` values are resolved before.
struct PlanParameters {
  std::int64_t batch_tokens = 0;     ///< token budget of a batch; a longer sample goes alone
  std::int64_t block_tokens = 0;     ///< token budget of a block, at least one batch
  std::int64_t shard_bytes = 0;      ///< size at which a shard is cut, at least one batch
  std::int64_t bytes_per_token = 0;  ///< L * H * 2
};

/// Packs samples of the given lengths. First-fit-decreasing within a window, batches ordered by their first sample.
/// Fails with kInternal only for parameters that config checking lets not pass.
Result<ChunkPlan> PlanChunk(std::span<const std::int64_t> cu_seqlens, const PlanParameters& parameters);

}  // namespace draftmill
