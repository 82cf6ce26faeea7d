// The part of write_operations.h that makes work of what was done.
#include <vector>

#include "state/write_operations.h"

namespace draftmill::operations {
namespace {

// Samples and conversations have no index by chunk: the chunk's range of numbers finds them.
constexpr std::string_view kDropSamplesOfChunk = R"(
  DELETE FROM samples
  WHERE chunk = ?1
    AND sample_id >= (SELECT first_sample FROM chunks WHERE chunk = ?1)
    AND sample_id < (SELECT first_sample + rows FROM chunks WHERE chunk = ?1))";

constexpr std::string_view kDropSamplesFromChunk = R"(
  DELETE FROM samples
  WHERE chunk >= ?1 AND sample_id >= (SELECT min(first_sample) FROM chunks WHERE chunk >= ?1))";

constexpr std::string_view kDropConversationsFromChunk = R"(
  DELETE FROM conversations
  WHERE chunk >= ?1 AND sample_id >= (SELECT min(first_sample) FROM chunks WHERE chunk >= ?1))";

constexpr std::string_view kNothingDone =
    "extracted_batches = 0, extracted_samples = 0, extracted_tokens = 0, extracted_bytes = 0, quarantined = 0, "
    "published_shards = 0, published_samples = 0, published_tokens = 0, published_bytes = 0";
constexpr std::string_view kNoPlan = "plan_hash = '', batches = 0, shards = 0, ";

/// Nothing is left of such a shard that could be replaced.
constexpr std::string_view kPlanDiscardedShards = R"(
  UPDATE shards
  SET state = 'planned', file = '', bytes = 0, digest = '', quarantined = 0, fingerprint = '', numerics = '',
      published_ms = NULL
  WHERE state = 'discarded')";

constexpr std::string_view kPlanBatchesOfDiscardedShards = R"(
  UPDATE batches
  SET state = 'planned', digest = '', quarantined = 0, seconds = 0
  WHERE EXISTS (SELECT 1 FROM shards AS s
                WHERE s.chunk = batches.chunk AND s.shard = batches.shard AND s.state = 'discarded'))";

constexpr std::string_view kDamageShardOfBatch = R"(
  UPDATE shards
  SET state = 'damaged'
  WHERE chunk = ?1 AND first_batch <= ?2 AND ?2 < first_batch + batches AND state IN ('published', 'discarded'))";

/// Changes the row only where a counter is wrong, so that the number of changes tells.
constexpr std::string_view kRecountChunk = R"(
  WITH
    b AS (
      SELECT count(*) AS batches,
             coalesce(sum(state = 'written'), 0) AS extracted_batches,
             coalesce(sum(iif(state = 'written', samples, 0)), 0) AS extracted_samples,
             coalesce(sum(iif(state = 'written', tokens, 0)), 0) AS extracted_tokens,
             coalesce(sum(iif(state = 'written', bytes, 0)), 0) AS extracted_bytes,
             coalesce(sum(iif(state = 'written', quarantined, 0)), 0) AS quarantined
      FROM batches WHERE chunk = ?1),
    s AS (
      SELECT count(*) AS shards,
             count(*) FILTER (WHERE state IN ('published', 'discarded')) AS published_shards,
             coalesce(sum(samples) FILTER (WHERE state IN ('published', 'discarded')), 0) AS published_samples,
             coalesce(sum(tokens) FILTER (WHERE state IN ('published', 'discarded')), 0) AS published_tokens,
             coalesce(sum(bytes) FILTER (WHERE state IN ('published', 'discarded')), 0) AS published_bytes
      FROM shards WHERE chunk = ?1)
  UPDATE chunks
  SET batches = b.batches, extracted_batches = b.extracted_batches, extracted_samples = b.extracted_samples,
      extracted_tokens = b.extracted_tokens, extracted_bytes = b.extracted_bytes, quarantined = b.quarantined,
      shards = s.shards, published_shards = s.published_shards, published_samples = s.published_samples,
      published_tokens = s.published_tokens, published_bytes = s.published_bytes
  FROM b, s
  WHERE chunks.chunk = ?1
    AND ((chunks.batches, chunks.extracted_batches, chunks.extracted_samples, chunks.extracted_tokens,
          chunks.extracted_bytes, chunks.quarantined)
         <> (b.batches, b.extracted_batches, b.extracted_samples, b.extracted_tokens, b.extracted_bytes, b.quarantined)
      OR (chunks.shards, chunks.published_shards, chunks.published_samples, chunks.published_tokens,
          chunks.published_bytes)
         <> (s.shards, s.published_shards, s.published_samples, s.published_tokens, s.published_bytes)))";

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

Status RunAll(sqlite::Connection& db, std::initializer_list<std::string_view> statements) {
  for (const std::string_view sql : statements) DRAFTMILL_RETURN_IF_ERROR(db.Run(sql));
  return OkStatus();
}

Status RunForChunk(sqlite::Connection& db, std::int64_t chunk, std::initializer_list<std::string_view> statements) {
  for (const std::string_view sql : statements) DRAFTMILL_RETURN_IF_ERROR(db.Run(sql, chunk));
  return OkStatus();
}

/// What was complete is so no longer.
Status MarkUndone(sqlite::Connection& db, std::initializer_list<std::string_view> stages) {
  for (const std::string_view stage : stages) {
    DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE stages SET state = 'stale' WHERE stage = ? AND state = 'done'", stage));
  }
  return OkStatus();
}

}  // namespace

Status DropExtraction(sqlite::Connection& db, std::int64_t chunk) {
  DRAFTMILL_RETURN_IF_ERROR(RunForChunk(db, chunk,
                                        {kDropSamplesOfChunk, "DELETE FROM plans WHERE chunk = ?",
                                         "DELETE FROM batches WHERE chunk = ?", "DELETE FROM shards WHERE chunk = ?",
                                         "DELETE FROM failures WHERE chunk = ? AND stage IN ('extract', 'write')"}));
  return db.Run(Joined({"UPDATE chunks SET ", kNoPlan, kNothingDone, " WHERE chunk = ?"}), chunk);
}

Status RedoAllExtraction(sqlite::Connection& db) {
  DRAFTMILL_RETURN_IF_ERROR(RunAll(
      db, {"UPDATE batches SET state = 'planned', digest = '', quarantined = 0, seconds = 0", kPlanDiscardedShards,
           "UPDATE shards SET state = 'stale' WHERE state <> 'planned'",
           "DELETE FROM failures WHERE stage IN ('extract', 'write')", Joined({"UPDATE chunks SET ", kNothingDone})}));
  return MarkUndone(db, {"extract", "write"});
}

Status RedoDiscardedShards(sqlite::Connection& db) {
  std::vector<std::int64_t> chunks;
  {
    DRAFTMILL_ASSIGN_OR_RETURN(
        sqlite::Statement query,
        db.Prepare("SELECT DISTINCT chunk FROM shards WHERE state = 'discarded' ORDER BY chunk"));
    for (;;) {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query.Step());
      if (!found) break;
      chunks.push_back(query.Integer(0));
    }
  }
  if (chunks.empty()) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(RunAll(db, {kPlanBatchesOfDiscardedShards, kPlanDiscardedShards}));
  for (const std::int64_t chunk : chunks) DRAFTMILL_RETURN_IF_ERROR(RecountChunk(db, chunk).status());
  return MarkUndone(db, {"extract", "write"});
}

Status RedoAllTokenization(sqlite::Connection& db) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE chunks SET tokenized = 0"));
  return MarkUndone(db, {"tokenize", "vocab_map", "extract", "write"});
}

Status RedoIngest(sqlite::Connection& db) {
  DRAFTMILL_RETURN_IF_ERROR(RunAll(db, {"UPDATE chunks SET ingested = 0", "DELETE FROM sources",
                                        "DELETE FROM conversations", "DELETE FROM failures WHERE stage = 'ingest'",
                                        "UPDATE stages SET reported_done = 0 WHERE stage = 'ingest'"}));
  return MarkUndone(db, {"ingest", "tokenize", "vocab_map", "extract", "write"});
}

Status DropChunksFrom(sqlite::Connection& db, std::int64_t chunks) {
  return RunForChunk(db, chunks,
                     {kDropSamplesFromChunk, kDropConversationsFromChunk, "DELETE FROM plans WHERE chunk >= ?",
                      "DELETE FROM batches WHERE chunk >= ?", "DELETE FROM shards WHERE chunk >= ?",
                      "DELETE FROM failures WHERE chunk >= ?", "DELETE FROM chunks WHERE chunk >= ?"});
}

Status MarkBatchesDamaged(sqlite::Connection& db, std::int64_t chunk, std::span<const std::int64_t> batches) {
  for (const std::int64_t batch : batches) {
    DRAFTMILL_RETURN_IF_ERROR(db.Run(
        "UPDATE batches SET state = 'planned', digest = '', quarantined = 0, seconds = 0 WHERE chunk = ? AND batch = ?",
        chunk, batch));
    DRAFTMILL_RETURN_IF_ERROR(db.Run(kDamageShardOfBatch, chunk, batch));
  }
  DRAFTMILL_RETURN_IF_ERROR(RecountChunk(db, chunk).status());
  return MarkUndone(db, {"extract", "write"});
}

Status MarkShardDamaged(sqlite::Connection& db, std::int64_t chunk, std::int64_t shard) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run(
      "UPDATE batches SET state = 'planned', digest = '', quarantined = 0, seconds = 0 WHERE chunk = ? AND shard = ?",
      chunk, shard));
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE shards SET state = 'damaged' WHERE chunk = ? AND shard = ?", chunk, shard));
  DRAFTMILL_RETURN_IF_ERROR(RecountChunk(db, chunk).status());
  return MarkUndone(db, {"extract", "write"});
}

Status MarkCorpusDamaged(sqlite::Connection& db, std::int64_t chunk) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE chunks SET tokenized = 0 WHERE chunk = ?", chunk));
  return MarkUndone(db, {"tokenize"});
}

Status MarkIngestedDamaged(sqlite::Connection& db, std::int64_t chunk) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE chunks SET ingested = 0 WHERE chunk = ?", chunk));
  return MarkUndone(db, {"ingest"});
}

Result<bool> RecountChunk(sqlite::Connection& db, std::int64_t chunk) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run(kRecountChunk, chunk));
  return db.changes() == 0;
}

}  // namespace draftmill::operations
