// Fills a state database as a run would, at any size: for tests and measurements only.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "state/store.h"

namespace draftmill {

/// The shape of an example. The first `written_chunks` chunks are published whole; the next one is half extracted and
/// has one published shard; one more is tokenized; the others are only ingested.
struct ExampleShape {
  std::int64_t chunks = 6;
  std::int64_t rows_per_chunk = 64;
  std::int64_t samples_per_batch = 8;
  std::int64_t batches_per_shard = 2;
  std::int64_t written_chunks = 3;
  std::int64_t tokens_per_sample = 100;
};

/// The records of one chunk of the shape.
std::vector<ConversationRecord> ExampleConversations(const ExampleShape& shape, std::int64_t chunk);
ChunkPlanRecord ExamplePlan(const ExampleShape& shape, std::int64_t chunk);
/// Samples [first, first + samples_per_batch) of that chunk in one batch: the rows as an extractor reports them.
WrittenBatchRecord ExampleBatch(std::int64_t chunk, std::int64_t batch);
PublishedShardRecord ExampleShard(const ExampleShape& shape, std::int64_t chunk, std::int64_t shard);

/// Begins a run named "tidy-heron" and writes everything; returns when it is durable.
Status FillExample(StateWriter& state, const ExampleShape& shape);

}  // namespace draftmill
