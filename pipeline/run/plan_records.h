// From a chunk and its plan to the rows of the tables plans, batches, shards and samples, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "pipeline/flow/chunk_flow.h"
#include "stages/extract/plan.h"
#include "state/state_records.h"

namespace draftmill {

/// What a chunk may take in memory on its way: its rows as parsed values and its tokens. An estimate from its packed size.
std::int64_t ChunkMemoryBytes(const ChunkRecord& chunk);

/// The plan's rows. Stored is what the plan was made from: a plan is a pure function of it and of the chunk's lengths.
ChunkPlanRecord PlanRecordOf(const ChunkWork& work, const PlanParameters& parameters);
/// The parameters that a stored plan was made with.
Result<PlanParameters> PlanParametersFromBytes(std::span<const std::uint8_t> stored);

/// Which shard of the plan holds a batch.
std::int64_t ShardOfBatch(const ChunkPlan& plan, std::int64_t batch);

}  // namespace draftmill
