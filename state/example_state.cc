#include "state/example_state.h"

#include <string>
#include <utility>

namespace draftmill {
namespace {

constexpr std::int64_t kBytesPerToken = 1024;

std::int64_t BatchesPerChunk(const ExampleShape& shape) { return shape.rows_per_chunk / shape.samples_per_batch; }
std::int64_t ShardsPerChunk(const ExampleShape& shape) { return BatchesPerChunk(shape) / shape.batches_per_shard; }

FailureRecord ExampleFailure(std::string stage, std::string reason, std::int64_t chunk, std::int64_t sample_id) {
  return {.stage = std::move(stage),
          .reason = std::move(reason),
          .message = "example of a bad row",
          .source = 0,
          .row = sample_id,
          .line = sample_id + 1,
          .sample_id = sample_id,
          .chunk = chunk};
}

void WriteStages(StateWriter& state) {
  state.DeclareStages({"ingest", "tokenize", "vocab_map", "extract", "write"});
  Fingerprint fingerprint;
  fingerprint.Add("code version", "1");
  fingerprint.Add("tokenize.max_length", "2048");
  state.SetFingerprint("tokenize", 1, fingerprint);
  state.SetStageState("ingest", StageState::kDone);
  for (const char* stage : {"tokenize", "vocab_map", "extract", "write"})
    state.SetStageState(stage, StageState::kRunning);
}

void WriteIngest(StateWriter& state, const ExampleShape& shape) {
  const std::int64_t rows = shape.chunks * shape.rows_per_chunk;
  state.PutSource({.source = 0,
                   .path = "data/chat.jsonl",
                   .format = "openai",
                   .bytes = rows * 2000,
                   .content_hash = "0123456789abcdef0123456789abcdef",
                   .modified_ns = 1,
                   .inode = 2,
                   .rows = rows + 3,
                   .kept = rows,
                   .duplicates = 1,
                   .rejected = 2});
  FailureRecord no_number = ExampleFailure("ingest", "broken_json", -1, -1);
  state.AddFailures({no_number, no_number});
  for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    state.PutConversations(ExampleConversations(shape, chunk));
    state.PutChunk({.chunk = chunk,
                    .first_sample = chunk * shape.rows_per_chunk,
                    .rows = shape.rows_per_chunk,
                    .bytes = shape.rows_per_chunk * 500,
                    .digest = "ingested " + std::to_string(chunk)});
  }
}

void WriteTokenized(StateWriter& state, const ExampleShape& shape, std::int64_t chunk) {
  TokenizedChunkRecord record{
      .chunk = chunk,
      .samples = shape.rows_per_chunk - 1,
      .tokens = (shape.rows_per_chunk - 1) * shape.tokens_per_sample,
      .supervised_tokens = (shape.rows_per_chunk - 1) * shape.tokens_per_sample / 2,
      .failed = 1,
      .corpus_digest = "corpus " + std::to_string(chunk),
      .corpus_bytes = shape.rows_per_chunk * shape.tokens_per_sample * 5,
      .report = R"({"rows":)" + std::to_string(shape.rows_per_chunk) + R"(,"boundary_tokens":2})"};
  // The last row of each chunk gives no sample.
  record.failures.push_back(
      ExampleFailure("tokenize", "no_supervised_token", chunk, (chunk + 1) * shape.rows_per_chunk - 1));
  state.PutTokenizedChunk(std::move(record));
}

void WriteExtracted(StateWriter& state, const ExampleShape& shape, std::int64_t chunk, std::int64_t batches,
                    std::int64_t shards) {
  for (std::int64_t batch = 0; batch < batches; ++batch) state.PutWrittenBatch(ExampleBatch(chunk, batch));
  for (std::int64_t shard = 0; shard < shards; ++shard) state.PutPublishedShard(ExampleShard(shape, chunk, shard));
}

}  // namespace

std::vector<ConversationRecord> ExampleConversations(const ExampleShape& shape, std::int64_t chunk) {
  std::vector<ConversationRecord> rows;
  rows.reserve(static_cast<std::size_t>(shape.rows_per_chunk));
  for (std::int64_t i = 0; i < shape.rows_per_chunk; ++i) {
    const std::int64_t id = chunk * shape.rows_per_chunk + i;
    rows.push_back({.sample_id = id,
                    .chunk = chunk,
                    .source = 0,
                    .row = id,
                    .line = id + 1,
                    .byte_offset = id * 2000,
                    .content_hash = HashBytes128(std::to_string(id))});
  }
  return rows;
}

ChunkPlanRecord ExamplePlan(const ExampleShape& shape, std::int64_t chunk) {
  ChunkPlanRecord plan{.chunk = chunk, .plan_hash = "plan " + std::to_string(chunk), .plan = {1, 2, 3}};
  const std::int64_t samples = shape.rows_per_chunk - 1;
  for (std::int64_t batch = 0; batch < BatchesPerChunk(shape); ++batch) {
    const std::int64_t count = std::min(shape.samples_per_batch, samples - batch * shape.samples_per_batch);
    plan.batches.push_back({.batch = batch,
                            .block = batch / 4,
                            .shard = batch / shape.batches_per_shard,
                            .samples = count,
                            .tokens = count * shape.tokens_per_sample,
                            .bytes = count * shape.tokens_per_sample * kBytesPerToken});
  }
  for (std::int64_t shard = 0; shard < ShardsPerChunk(shape); ++shard) {
    ShardRecord record{
        .shard = shard, .first_batch = shard * shape.batches_per_shard, .batches = shape.batches_per_shard};
    for (const BatchRecord& batch : plan.batches) {
      if (batch.shard != shard) continue;
      record.samples += batch.samples;
      record.tokens += batch.tokens;
    }
    plan.shards.push_back(std::move(record));
  }
  for (std::int64_t i = 0; i < samples; ++i) {
    plan.samples.push_back({.sample_id = chunk * shape.rows_per_chunk + i,
                            .batch = i / shape.samples_per_batch,
                            .position = i,
                            .tokens = shape.tokens_per_sample,
                            .supervised_tokens = shape.tokens_per_sample / 2,
                            .turn = 1});
  }
  return plan;
}

WrittenBatchRecord ExampleBatch(std::int64_t chunk, std::int64_t batch) {
  return {.chunk = chunk, .batch = batch, .digest = "batch " + std::to_string(batch), .seconds = 0.5};
}

PublishedShardRecord ExampleShard(const ExampleShape& shape, std::int64_t chunk, std::int64_t shard) {
  const std::int64_t tokens = shape.batches_per_shard * shape.samples_per_batch * shape.tokens_per_sample;
  return {.chunk = chunk,
          .shard = shard,
          .file = "shards/" + std::to_string(chunk) + "/s" + std::to_string(shard) + ".safetensors",
          .bytes = tokens * kBytesPerToken + 4096,
          .digest = "shard " + std::to_string(shard),
          .fingerprint = "extract fingerprint",
          .numerics = "cpu"};
}

Status FillExample(StateWriter& state, const ExampleShape& shape) {
  DRAFTMILL_RETURN_IF_ERROR(state
                                .BeginRun({.name = "tidy-heron",
                                           .program_version = "0.1.0",
                                           .parameters = "{}",
                                           .host = "example-host",
                                           .boot_id = "boot",
                                           .pid = 42})
                                .status());
  WriteStages(state);
  WriteIngest(state, shape);
  const std::int64_t tokenized = std::min(shape.written_chunks + 2, shape.chunks);
  for (std::int64_t chunk = 0; chunk < tokenized; ++chunk) WriteTokenized(state, shape, chunk);
  for (std::int64_t chunk = 0; chunk < shape.written_chunks; ++chunk) {
    state.PutPlan(ExamplePlan(shape, chunk));
    WriteExtracted(state, shape, chunk, BatchesPerChunk(shape), ShardsPerChunk(shape));
  }
  if (shape.written_chunks < shape.chunks) {
    state.PutPlan(ExamplePlan(shape, shape.written_chunks));
    WriteExtracted(state, shape, shape.written_chunks, BatchesPerChunk(shape) / 2, 1);
  }
  state.AddThroughput({.stage = "extract", .span_ms = 10'000, .samples = 100, .tokens = 10'000, .bytes = 10'240'000});
  state.AddEvent(EventLevel::kWarning, "one row had no supervised token");
  state.SetFact("model.fingerprint", "0123");
  return state.Flush();
}

}  // namespace draftmill
