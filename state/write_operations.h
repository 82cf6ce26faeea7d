// Every change of state.db, as functions on an open connection within the caller's transaction.
//
// StateWriter runs them in its thread and commits; `state rebuild` and tests may call them directly. Counters of a
// chunk change together with the rows they count. Each operation may be repeated: a second call with the same record
// changes nothing more, so a resumed run need not know whether the first one was committed.
//
// Errors: kInternal where a record contradicts the database (a batch that was never planned): a bug of the caller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "state/fingerprint.h"
#include "state/sqlite.h"
#include "state/state_records.h"

namespace draftmill::operations {

// --- Runs, events, rates -------------------------------------------------------------------------------------------

/// Inserts the run and returns its number.
Result<std::int64_t> BeginRun(sqlite::Connection& db, const RunRecord& run);
Status FinishRun(sqlite::Connection& db, std::int64_t run, std::int64_t finished_ms, int exit_status,
                 std::string_view summary);
Status AddEvent(sqlite::Connection& db, const EventRecord& event);
Status AddThroughput(sqlite::Connection& db, const ThroughputRecord& point);
/// Sets a single named value, e.g. "model.fingerprint".
Status SetFact(sqlite::Connection& db, std::string_view name, std::string_view value);

// --- Stages --------------------------------------------------------------------------------------------------------

/// Makes the rows of all stages, in the order in which data passes; those that exist keep their state.
Status DeclareStages(sqlite::Connection& db, std::span<const std::string> stages);
Status SetStageState(sqlite::Connection& db, std::string_view stage, StageState state, std::int64_t now_ms);
/// Replaces what the stage's output depends on.
Status SetFingerprint(sqlite::Connection& db, std::string_view stage, std::int64_t version,
                      const Fingerprint& fingerprint);
/// Progress of ingest (bytes of sources read) and vocab_map (samples counted); the other stages' is counted.
Status SetStageDone(sqlite::Connection& db, std::string_view stage, std::int64_t done);

// --- Ingest --------------------------------------------------------------------------------------------------------

/// Inserts or replaces a source.
Status PutSource(sqlite::Connection& db, const SourceRecord& source);
/// Inserts or replaces rows; ascending sample ids are quickest.
Status PutConversations(sqlite::Connection& db, std::span<const ConversationRecord> conversations);
/// Inserts a chunk. Where it stands with other content, all that was made of it is dropped.
Status PutChunk(sqlite::Connection& db, const IngestedChunkRecord& chunk);
/// Adds rows to quarantine.
Status AddFailures(sqlite::Connection& db, std::span<const FailureRecord> failures);
/// Drops chunks from `chunks` on, with their conversations and all that was made of them: ends an ingest that was
/// redone and gave fewer.
Status DropChunksFrom(sqlite::Connection& db, std::int64_t chunks);

// --- Tokenize, plan, extract, write --------------------------------------------------------------------------------

/// Takes the place of what an earlier tokenization of the chunk left. A different corpus digest drops its plan,
/// batches, shards and samples.
Status PutTokenizedChunk(sqlite::Connection& db, const TokenizedChunkRecord& chunk);
/// Stores a chunk's plan with its batches, shards and samples. Where the same plan hash stands already nothing changes;
/// another plan takes the old one's place, and nothing of the chunk counts as extracted any more.
Status PutPlan(sqlite::Connection& db, const ChunkPlanRecord& plan);
Status PutWrittenBatch(sqlite::Connection& db, const WrittenBatchRecord& batch);
/// All batches of the shard must be written. A discarded one counts as done, too.
Status PutPublishedShard(sqlite::Connection& db, const PublishedShardRecord& shard, std::int64_t now_ms);

// --- Doing things again --------------------------------------------------------------------------------------------

/// Drops plan, batches, shards and samples of a chunk and its failures of extract and write. Its files are the
/// caller's, who removes them after this is durable.
Status DropExtraction(sqlite::Connection& db, std::int64_t chunk);
/// All batches count as planned and all published shards as stale, under the plans that stand: old files stay until
/// they are replaced. Discarded shards count as planned.
Status RedoAllExtraction(sqlite::Connection& db);
/// Of all discarded shards the batches count as planned, as if they had never been written.
Status RedoDiscardedShards(sqlite::Connection& db);
/// All chunks are to be tokenized again. What was made of them stays until PutTokenizedChunk brings another digest.
Status RedoAllTokenization(sqlite::Connection& db);
/// All chunks are to be ingested again; sources, conversations and failures of ingest are dropped, what was made of the
/// chunks stays until PutChunk brings other content. DropChunksFrom ends it.
Status RedoIngest(sqlite::Connection& db);
/// These batches are to be written again; a published shard that holds one becomes damaged.
Status MarkBatchesDamaged(sqlite::Connection& db, std::int64_t chunk, std::span<const std::int64_t> batches);
/// All batches of the shard are to be written again (its file is gone or its header is damaged).
Status MarkShardDamaged(sqlite::Connection& db, std::int64_t chunk, std::int64_t shard);
/// The corpus file is gone or damaged: the chunk is to be tokenized again.
Status MarkCorpusDamaged(sqlite::Connection& db, std::int64_t chunk);
/// The ingested rows are gone or damaged: the chunk is to be ingested again.
Status MarkIngestedDamaged(sqlite::Connection& db, std::int64_t chunk);

/// Counts a chunk's batches and shards again from their rows; returns whether the counters had been right.
Result<bool> RecountChunk(sqlite::Connection& db, std::int64_t chunk);

}  // namespace draftmill::operations
