#include "state/write_operations.h"

#include <optional>

namespace draftmill::operations {
namespace {

std::optional<std::int64_t> NullIfNegative(std::int64_t value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

std::string BatchName(std::int64_t chunk, std::int64_t batch) {
  return "batch " + std::to_string(batch) + " of chunk " + std::to_string(chunk);
}

std::string ShardName(std::int64_t chunk, std::int64_t shard) {
  return "shard " + std::to_string(shard) + " of chunk " + std::to_string(chunk);
}

/// The update must have met the row that the caller says is there.
Status ExpectChanged(const sqlite::Connection& db, const std::string& what) {
  return db.changes() > 0 ? OkStatus() : Internal("the state database has no " + what);
}

/// Fails where the chunk is not there; else the first column of `sql` for it.
Result<std::string> ChunkText(sqlite::Connection& db, std::string_view sql, std::int64_t chunk) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * query, db.Cached(sql));
  DRAFTMILL_RETURN_IF_ERROR(query->Bind(chunk));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query->Step());
  if (!found) return Internal("the state database has no chunk " + std::to_string(chunk));
  std::string text = query->Text(0);
  DRAFTMILL_RETURN_IF_ERROR(query->Reset());
  return text;
}

/// Adds (sign 1) or takes away (-1) a written batch in the counters of its chunk.
Status CountBatch(sqlite::Connection& db, std::int64_t chunk, std::int64_t batch, int sign) {
  return db.Run(
      R"(
          UPDATE chunks
          SET extracted_batches = extracted_batches + ?3, extracted_samples = extracted_samples + ?3 * b.samples,
          extracted_tokens = extracted_tokens + ?3 * b.tokens, extracted_bytes = extracted_bytes + ?3 * b.bytes,
          quarantined = chunks.quarantined + ?3 * b.quarantined
          FROM batches AS b
          WHERE b.chunk = ?1 AND b.batch = ?2 AND b.state = 'written' AND chunks.chunk = ?1)",
      chunk, batch, sign);
}

/// The same for a published or discarded shard.
Status CountShard(sqlite::Connection& db, std::int64_t chunk, std::int64_t shard, int sign) {
  return db.Run(
      R"(
          UPDATE chunks
          SET published_shards = published_shards + ?3, published_samples = published_samples + ?3 * s.samples,
          published_tokens = published_tokens + ?3 * s.tokens, published_bytes = published_bytes + ?3 * s.bytes
          FROM shards AS s
          WHERE s.chunk = ?1 AND s.shard = ?2 AND s.state IN ('published', 'discarded') AND chunks.chunk = ?1)",
      chunk, shard, sign);
}

Status InsertBatches(sqlite::Connection& db, const ChunkPlanRecord& plan) {
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement * insert,
      db.Cached(
          "INSERT INTO batches (chunk, batch, block, shard, samples, tokens, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)"));
  for (const BatchRecord& b : plan.batches) {
    DRAFTMILL_RETURN_IF_ERROR(insert->Run(plan.chunk, b.batch, b.block, b.shard, b.samples, b.tokens, b.bytes));
  }
  return OkStatus();
}

Status InsertShards(sqlite::Connection& db, const ChunkPlanRecord& plan) {
  DRAFTMILL_ASSIGN_OR_RETURN(
      sqlite::Statement * insert,
      db.Cached("INSERT INTO shards (chunk, shard, first_batch, batches, samples, tokens) VALUES (?, ?, ?, ?, ?, ?)"));
  for (const ShardRecord& s : plan.shards) {
    DRAFTMILL_RETURN_IF_ERROR(insert->Run(plan.chunk, s.shard, s.first_batch, s.batches, s.samples, s.tokens));
  }
  return OkStatus();
}

Status InsertSamples(sqlite::Connection& db, const ChunkPlanRecord& plan) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * insert, db.Cached(R"(
          INSERT OR REPLACE INTO samples (sample_id, variant, chunk, batch, position, tokens,
          supervised_tokens, turn, source)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))"));
  for (const SampleRecord& s : plan.samples) {
    DRAFTMILL_RETURN_IF_ERROR(insert->Run(s.sample_id, s.variant, plan.chunk, s.batch, s.position, s.tokens,
                                          s.supervised_tokens, s.turn, s.source));
  }
  return OkStatus();
}

}  // namespace

Result<std::int64_t> BeginRun(sqlite::Connection& db, const RunRecord& run) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run(R"(
          INSERT INTO runs (name, program_version, parameters, host, boot_id, pid, started_ms)
          VALUES (?, ?, ?, ?, ?, ?, ?))",
                                   run.name, run.program_version, run.parameters, run.host, run.boot_id, run.pid,
                                   run.started_ms));
  return db.last_insert_row();
}

Status FinishRun(sqlite::Connection& db, std::int64_t run, std::int64_t finished_ms, int exit_status,
                 std::string_view summary) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE runs SET finished_ms = ?, exit_status = ?, summary = ? WHERE run = ?",
                                   finished_ms, exit_status, summary, run));
  return ExpectChanged(db, "run " + std::to_string(run));
}

Status AddEvent(sqlite::Connection& db, const EventRecord& event) {
  return db.Run("INSERT INTO events (run, at_ms, level, text) VALUES (?, ?, ?, ?)", event.run, event.at_ms,
                EventLevelName(event.level), event.text);
}

Status AddThroughput(sqlite::Connection& db, const ThroughputRecord& p) {
  return db.Run(
      "INSERT INTO throughput (run, stage, at_ms, span_ms, samples, tokens, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)", p.run,
      p.stage, p.at_ms, p.span_ms, p.samples, p.tokens, p.bytes);
}

Status SetFact(sqlite::Connection& db, std::string_view name, std::string_view value) {
  return db.Run("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", name, value);
}

Status DeclareStages(sqlite::Connection& db, std::span<const std::string> stages) {
  // A stage that a later version puts between two others moves those behind it: out of the way first.
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE stages SET position = -1 - position"));
  std::int64_t position = 0;
  for (const std::string& stage : stages) {
    DRAFTMILL_RETURN_IF_ERROR(db.Run(
        R"(
          INSERT INTO stages (stage, position, version)
          VALUES (?, ?, 0)
          ON CONFLICT (stage) DO UPDATE
          SET position = excluded.position)",
        stage, position));
    ++position;
  }
  return db.Run("DELETE FROM stages WHERE position < 0");
}

Status SetStageState(sqlite::Connection& db, std::string_view stage, StageState state, std::int64_t now_ms) {
  DRAFTMILL_RETURN_IF_ERROR(
      db.Run("UPDATE stages SET state = ?, changed_ms = ? WHERE stage = ?", StageStateName(state), now_ms, stage));
  return ExpectChanged(db, "stage " + std::string(stage));
}

Status SetFingerprint(sqlite::Connection& db, std::string_view stage, std::int64_t version,
                      const Fingerprint& fingerprint) {
  const std::string hash = fingerprint.empty() ? "" : fingerprint.hash();
  DRAFTMILL_RETURN_IF_ERROR(
      db.Run("UPDATE stages SET version = ?, fingerprint = ? WHERE stage = ?", version, hash, stage));
  DRAFTMILL_RETURN_IF_ERROR(ExpectChanged(db, "stage " + std::string(stage)));
  DRAFTMILL_RETURN_IF_ERROR(db.Run("DELETE FROM fingerprint_parts WHERE stage = ?", stage));
  std::int64_t position = 0;
  for (const FingerprintPart& part : fingerprint.parts()) {
    DRAFTMILL_RETURN_IF_ERROR(db.Run("INSERT INTO fingerprint_parts (stage, position, name, value) VALUES (?, ?, ?, ?)",
                                     stage, position, part.name, part.value));
    ++position;
  }
  return OkStatus();
}

Status SetStageDone(sqlite::Connection& db, std::string_view stage, std::int64_t done) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run("UPDATE stages SET reported_done = ? WHERE stage = ?", done, stage));
  return ExpectChanged(db, "stage " + std::string(stage));
}

Status PutSource(sqlite::Connection& db, const SourceRecord& s) {
  return db.Run(
      R"(
          INSERT OR REPLACE INTO sources (source, epoch, path, format, bytes, content_hash, modified_ns, inode,
          rows, kept, duplicates, rejected, not_taken)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
      s.source, s.epoch, s.path, s.format, s.bytes, s.content_hash, s.modified_ns, s.inode, s.rows, s.kept,
      s.duplicates, s.rejected, s.not_taken);
}

Status PutConversations(sqlite::Connection& db, std::span<const ConversationRecord> conversations) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * insert, db.Cached(R"(
          INSERT OR REPLACE INTO conversations (sample_id, chunk, source, row, line,
          byte_offset, content_hash)
          VALUES (?, ?, ?, ?, ?, ?, ?))"));
  for (const ConversationRecord& c : conversations) {
    DRAFTMILL_RETURN_IF_ERROR(
        insert->Run(c.sample_id, c.chunk, c.source, c.row, c.line, c.byte_offset, c.content_hash.bytes));
  }
  return OkStatus();
}

Status PutChunk(sqlite::Connection& db, const IngestedChunkRecord& c) {
  DRAFTMILL_RETURN_IF_ERROR(db.Run(
      R"(
          UPDATE chunks
          SET ingested = 1, epoch = ?2
          WHERE chunk = ?1 AND first_sample = ?3 AND rows = ?4 AND bytes = ?5 AND ingested_digest = ?6)",
      c.chunk, c.epoch, c.first_sample, c.rows, c.bytes, c.digest));
  if (db.changes() > 0) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(DropExtraction(db, c.chunk));
  DRAFTMILL_RETURN_IF_ERROR(db.Run("DELETE FROM failures WHERE chunk = ? AND stage = 'tokenize'", c.chunk));
  return db.Run(
      R"(
          INSERT OR REPLACE INTO chunks (chunk, epoch, first_sample, rows, bytes, ingested_digest)
          VALUES (?, ?, ?, ?, ?, ?))",
      c.chunk, c.epoch, c.first_sample, c.rows, c.bytes, c.digest);
}

Status AddFailures(sqlite::Connection& db, std::span<const FailureRecord> failures) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * insert, db.Cached(R"(
          INSERT INTO failures (stage, reason, message, source, row, line, byte_offset,
          sample_id, variant, chunk)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?))"));
  for (const FailureRecord& f : failures) {
    DRAFTMILL_RETURN_IF_ERROR(insert->Run(f.stage, f.reason, f.message, f.source, f.row, f.line, f.byte_offset,
                                          NullIfNegative(f.sample_id), f.variant, NullIfNegative(f.chunk)));
  }
  return OkStatus();
}

Status PutTokenizedChunk(sqlite::Connection& db, const TokenizedChunkRecord& c) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string old_digest,
                             ChunkText(db, "SELECT corpus_digest FROM chunks WHERE chunk = ?", c.chunk));
  if (old_digest != c.corpus_digest) DRAFTMILL_RETURN_IF_ERROR(DropExtraction(db, c.chunk));
  DRAFTMILL_RETURN_IF_ERROR(db.Run(R"(
          UPDATE chunks
          SET tokenized = 1, samples = ?, tokens = ?, supervised_tokens = ?, tokenize_failed = ?, corpus_digest = ?,
          corpus_bytes = ?, tokenize_report = ?
          WHERE chunk = ?)",
                                   c.samples, c.tokens, c.supervised_tokens, c.failed, c.corpus_digest, c.corpus_bytes,
                                   c.report, c.chunk));
  DRAFTMILL_RETURN_IF_ERROR(db.Run("DELETE FROM failures WHERE chunk = ? AND stage = 'tokenize'", c.chunk));
  return AddFailures(db, c.failures);
}

Status PutPlan(sqlite::Connection& db, const ChunkPlanRecord& plan) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string old_hash,
                             ChunkText(db, "SELECT plan_hash FROM chunks WHERE chunk = ?", plan.chunk));
  if (old_hash == plan.plan_hash) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(DropExtraction(db, plan.chunk));
  DRAFTMILL_RETURN_IF_ERROR(db.Run("INSERT INTO plans (chunk, plan) VALUES (?, ?)", plan.chunk, plan.plan));
  DRAFTMILL_RETURN_IF_ERROR(InsertBatches(db, plan));
  DRAFTMILL_RETURN_IF_ERROR(InsertShards(db, plan));
  DRAFTMILL_RETURN_IF_ERROR(InsertSamples(db, plan));
  return db.Run("UPDATE chunks SET plan_hash = ?, batches = ?, shards = ? WHERE chunk = ?", plan.plan_hash,
                plan.batches.size(), plan.shards.size(), plan.chunk);
}

Status PutWrittenBatch(sqlite::Connection& db, const WrittenBatchRecord& b) {
  DRAFTMILL_RETURN_IF_ERROR(CountBatch(db, b.chunk, b.batch, -1));
  DRAFTMILL_RETURN_IF_ERROR(db.Run(
      "UPDATE batches SET state = 'written', digest = ?, quarantined = ?, seconds = ? WHERE chunk = ? AND batch = ?",
      b.digest, b.quarantined, b.seconds, b.chunk, b.batch));
  DRAFTMILL_RETURN_IF_ERROR(ExpectChanged(db, BatchName(b.chunk, b.batch)));
  DRAFTMILL_RETURN_IF_ERROR(CountBatch(db, b.chunk, b.batch, 1));
  // An earlier computation of this batch may have left failures.
  DRAFTMILL_RETURN_IF_ERROR(db.Run(R"(
          DELETE
          FROM failures
          WHERE chunk = ?1 AND stage = 'extract'
          AND EXISTS (SELECT 1
          FROM samples AS s
          WHERE s.sample_id = failures.sample_id AND s.variant = failures.variant AND s.batch = ?2))",
                                   b.chunk, b.batch));
  return AddFailures(db, b.failures);
}

Status PutPublishedShard(sqlite::Connection& db, const PublishedShardRecord& s, std::int64_t now_ms) {
  DRAFTMILL_RETURN_IF_ERROR(CountShard(db, s.chunk, s.shard, -1));
  DRAFTMILL_RETURN_IF_ERROR(db.Run(
      R"(
          UPDATE shards
          SET state = ?10, file = ?3, bytes = ?4, digest = ?5, quarantined = ?6, fingerprint = ?7, numerics = ?8,
          published_ms = ?9
          WHERE chunk = ?1 AND shard = ?2 AND batches = (SELECT count(*)
          FROM batches AS b
          WHERE b.chunk = ?1 AND b.batch >= shards.first_batch AND b.batch < shards.first_batch + shards.batches AND
          b.state = 'written'))",
      s.chunk, s.shard, s.file, s.bytes, s.digest, s.quarantined, s.fingerprint, s.numerics, now_ms,
      ShardStateName(s.is_discarded ? ShardState::kDiscarded : ShardState::kPublished)));
  DRAFTMILL_RETURN_IF_ERROR(ExpectChanged(db, ShardName(s.chunk, s.shard) + " with all its batches written"));
  return CountShard(db, s.chunk, s.shard, 1);
}

}  // namespace draftmill::operations
