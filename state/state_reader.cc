#include "state/state_reader.h"

#include <algorithm>
#include <utility>

#include "state/schema.h"

namespace draftmill {
namespace {

/// All rows of a query, each made by `make` from the statement that stands on it.
template <typename Make, typename... Values>
auto QueryAll(sqlite::Connection& db, std::string_view sql, Make make, const Values&... values)
    -> Result<std::vector<decltype(make(std::declval<const sqlite::Statement&>()))>> {
  std::vector<decltype(make(std::declval<const sqlite::Statement&>()))> rows;
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Statement * query, db.Cached(sql));
  DRAFTMILL_RETURN_IF_ERROR(query->Bind(values...));
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool found, query->Step());
    if (!found) return rows;
    rows.push_back(make(*query));
  }
}

/// The only row of a query, or kNotFound naming `what`.
template <typename Make, typename... Values>
auto QueryOne(sqlite::Connection& db, std::string_view sql, const std::string& what, Make make, const Values&... values)
    -> Result<decltype(make(std::declval<const sqlite::Statement&>()))> {
  DRAFTMILL_ASSIGN_OR_RETURN(auto rows, QueryAll(db, sql, make, values...));
  if (rows.empty()) return NotFound("the state database has no " + what);
  return std::move(rows.front());
}

// Values of a column with a CHECK: what is none of the others is the one left.
StageState ToStageState(std::string_view name) {
  for (const StageState state : {StageState::kPending, StageState::kRunning, StageState::kDone}) {
    if (StageStateName(state) == name) return state;
  }
  return StageState::kStale;
}

ShardState ToShardState(std::string_view name) {
  for (const ShardState state :
       {ShardState::kPlanned, ShardState::kPublished, ShardState::kDiscarded, ShardState::kDamaged}) {
    if (ShardStateName(state) == name) return state;
  }
  return ShardState::kStale;
}

EventLevel ToEventLevel(std::string_view name) {
  for (const EventLevel level : {EventLevel::kInfo, EventLevel::kWarning}) {
    if (EventLevelName(level) == name) return level;
  }
  return EventLevel::kError;
}

constexpr std::string_view kRunColumns =
    "run, name, program_version, parameters, host, boot_id, pid, started_ms, finished_ms, exit_status, summary";

RunRecord ToRun(const sqlite::Statement& row) {
  return {.run = row.Integer(0),
          .name = row.Text(1),
          .program_version = row.Text(2),
          .parameters = row.Text(3),
          .host = row.Text(4),
          .boot_id = row.Text(5),
          .pid = row.Integer(6),
          .started_ms = row.Integer(7),
          .finished_ms = row.OptionalInteger(8),
          .exit_status = row.OptionalInteger(9),
          .summary = row.Text(10)};
}

StageRecord ToStage(const sqlite::Statement& row) {
  return {.stage = row.Text(0), .state = ToStageState(row.Text(1)), .version = row.Integer(2), .fingerprint = {}};
}

ProgressRecord ToProgress(const sqlite::Statement& row) {
  return {.stage = row.Text(0),
          .state = row.Text(1),
          .unit = row.Text(2),
          .total = row.Integer(3),
          .done = row.Integer(4),
          .failed = row.Integer(5),
          .percent = row.Real(6),
          .samples_per_second = row.OptionalReal(7),
          .tokens_per_second = row.OptionalReal(8),
          .bytes = row.Integer(9),
          .eta_seconds = row.OptionalInteger(10)};
}

SourceRecord ToSource(const sqlite::Statement& row) {
  return {.source = row.Integer(0),
          .epoch = row.Integer(1),
          .path = row.Text(2),
          .format = row.Text(3),
          .bytes = row.Integer(4),
          .content_hash = row.Text(5),
          .modified_ns = row.Integer(6),
          .inode = static_cast<std::uint64_t>(row.Integer(7)),
          .rows = row.Integer(8),
          .kept = row.Integer(9),
          .duplicates = row.Integer(10),
          .rejected = row.Integer(11),
          .not_taken = row.Integer(12)};
}

ChunkRecord ToChunk(const sqlite::Statement& row) {
  return {.chunk = row.Integer(0),
          .epoch = row.Integer(1),
          .first_sample = row.Integer(2),
          .rows = row.Integer(3),
          .bytes = row.Integer(4),
          .ingested_digest = row.Text(5),
          .ingested = row.Integer(6) != 0,
          .tokenized = row.Integer(7) != 0,
          .samples = row.Integer(8),
          .tokens = row.Integer(9),
          .supervised_tokens = row.Integer(10),
          .tokenize_failed = row.Integer(11),
          .corpus_digest = row.Text(12),
          .corpus_bytes = row.Integer(13),
          .plan_hash = row.Text(14),
          .batches = row.Integer(15),
          .shards = row.Integer(16),
          .extracted_batches = row.Integer(17),
          .extracted_samples = row.Integer(18),
          .extracted_tokens = row.Integer(19),
          .extracted_bytes = row.Integer(20),
          .quarantined = row.Integer(21),
          .published_shards = row.Integer(22),
          .published_samples = row.Integer(23),
          .published_tokens = row.Integer(24),
          .published_bytes = row.Integer(25)};
}

BatchRecord ToBatch(const sqlite::Statement& row) {
  return {.batch = row.Integer(0),
          .block = row.Integer(1),
          .shard = row.Integer(2),
          .samples = row.Integer(3),
          .tokens = row.Integer(4),
          .bytes = row.Integer(5),
          .written = row.Text(6) == "written",
          .digest = row.Text(7),
          .quarantined = row.Integer(8),
          .seconds = row.Real(9)};
}

ShardRecord ToShard(const sqlite::Statement& row) {
  return {.shard = row.Integer(0),
          .first_batch = row.Integer(1),
          .batches = row.Integer(2),
          .samples = row.Integer(3),
          .tokens = row.Integer(4),
          .state = ToShardState(row.Text(5)),
          .file = row.Text(6),
          .bytes = row.Integer(7),
          .digest = row.Text(8),
          .quarantined = row.Integer(9),
          .fingerprint = row.Text(10),
          .numerics = row.Text(11),
          .published_ms = row.OptionalInteger(12)};
}

SampleRecord ToSample(const sqlite::Statement& row) {
  return {.sample_id = row.Integer(0),
          .variant = row.Integer(1),
          .batch = row.Integer(2),
          .position = row.Integer(3),
          .tokens = row.Integer(4),
          .supervised_tokens = row.Integer(5),
          .turn = row.Integer(6),
          .source = row.Integer(7)};
}

SamplePlace ToPlace(const sqlite::Statement& row) {
  return {.sample_id = row.Integer(0),
          .variant = row.Integer(1),
          .stage = row.Text(2),
          .chunk = row.Integer(3),
          .batch = row.OptionalInteger(4),
          .block = row.OptionalInteger(5),
          .shard = row.OptionalInteger(6),
          .position = row.OptionalInteger(7),
          .tokens = row.OptionalInteger(8),
          .supervised_tokens = row.OptionalInteger(9),
          .turn = row.OptionalInteger(10),
          .file = row.Text(11),
          .failed_in = row.Text(12),
          .reason = row.Text(13),
          .source = row.Integer(14),
          .row = row.Integer(15),
          .line = row.Integer(16),
          .byte_offset = row.Integer(17)};
}

FailureRecord ToFailure(const sqlite::Statement& row) {
  return {.failure = row.Integer(0),
          .stage = row.Text(1),
          .reason = row.Text(2),
          .message = row.Text(3),
          .source = row.Integer(4),
          .row = row.Integer(5),
          .line = row.Integer(6),
          .byte_offset = row.Integer(7),
          .sample_id = row.OptionalInteger(8).value_or(-1),
          .variant = row.Integer(9),
          .chunk = row.OptionalInteger(10).value_or(-1)};
}

EventRecord ToEvent(const sqlite::Statement& row) {
  return {.event = row.Integer(0),
          .run = row.Integer(1),
          .at_ms = row.Integer(2),
          .level = ToEventLevel(row.Text(3)),
          .text = row.Text(4)};
}

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

}  // namespace

Result<StateReader> StateReader::Open(const std::string& work_folder, FileSystem& files) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Connection connection, OpenForReading(files, StateDatabasePath(work_folder)));
  return StateReader(std::move(connection));
}

Result<std::vector<RunRecord>> StateReader::Runs() {
  return QueryAll(connection_, Joined({"SELECT ", kRunColumns, " FROM runs ORDER BY run"}), ToRun);
}

Result<std::optional<RunRecord>> StateReader::LastRun() {
  const std::string sql = Joined({"SELECT ", kRunColumns, " FROM runs ORDER BY run DESC LIMIT 1"});
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<RunRecord> runs, QueryAll(connection_, sql, ToRun));
  return runs.empty() ? std::optional<RunRecord>() : std::optional(std::move(runs.front()));
}

Result<StageRecord> StateReader::WithParts(StageRecord stage) {
  DRAFTMILL_ASSIGN_OR_RETURN(
      std::vector<FingerprintPart> parts,
      QueryAll(
          connection_, "SELECT name, value FROM fingerprint_parts WHERE stage = ? ORDER BY position",
          [](const sqlite::Statement& row) {
            return FingerprintPart{row.Text(0), row.Text(1)};
          },
          stage.stage));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool repeated = std::any_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const FingerprintPart& part) { return part.name == parts[i].name; });
    if (repeated) {
      return sqlite::Damaged("state.db",
                             "the fingerprint of " + stage.stage + " has the part " + parts[i].name + " twice");
    }
  }
  for (FingerprintPart& part : parts) stage.fingerprint.Add(std::move(part.name), std::move(part.value));
  return stage;
}

Result<std::vector<StageRecord>> StateReader::Stages() {
  DRAFTMILL_ASSIGN_OR_RETURN(
      std::vector<StageRecord> stages,
      QueryAll(connection_, "SELECT stage, state, version FROM stages ORDER BY position", ToStage));
  for (StageRecord& stage : stages) {
    DRAFTMILL_ASSIGN_OR_RETURN(stage, WithParts(std::move(stage)));
  }
  return stages;
}

Result<StageRecord> StateReader::Stage(std::string_view stage) {
  DRAFTMILL_ASSIGN_OR_RETURN(StageRecord record,
                             QueryOne(connection_, "SELECT stage, state, version FROM stages WHERE stage = ?",
                                      "stage " + std::string(stage), ToStage, stage));
  return WithParts(std::move(record));
}

Result<std::vector<ProgressRecord>> StateReader::Progress() {
  return QueryAll(connection_,
                  R"(
          SELECT stage, state, unit, total, done, failed, percent, samples_per_second, tokens_per_second, bytes,
          eta_seconds
          FROM progress)",
                  ToProgress);
}

Result<std::optional<std::string>> StateReader::Fact(std::string_view name) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::string> values,
                             QueryAll(
                                 connection_, "SELECT value FROM facts WHERE name = ?",
                                 [](const sqlite::Statement& row) { return row.Text(0); }, name));
  return values.empty() ? std::optional<std::string>() : std::optional(std::move(values.front()));
}

Result<std::vector<EventRecord>> StateReader::Events(std::int64_t after, std::int64_t limit) {
  return QueryAll(connection_,
                  "SELECT event, run, at_ms, level, text FROM events WHERE event > ? ORDER BY event LIMIT ?", ToEvent,
                  after, limit);
}

Result<std::vector<SourceRecord>> StateReader::Sources() {
  return QueryAll(connection_,
                  R"(
          SELECT source, epoch, path, format, bytes, content_hash, modified_ns, inode, rows, kept, duplicates,
          rejected, not_taken
          FROM sources
          ORDER BY source)",
                  ToSource);
}

Result<std::vector<ChunkRecord>> StateReader::Chunks() {
  return QueryAll(connection_,
                  R"(
          SELECT chunk, epoch, first_sample, rows, bytes, ingested_digest, ingested, tokenized, samples, tokens,
          supervised_tokens, tokenize_failed, corpus_digest, corpus_bytes, plan_hash, batches, shards,
          extracted_batches, extracted_samples, extracted_tokens, extracted_bytes, quarantined, published_shards,
          published_samples, published_tokens, published_bytes
          FROM chunks
          ORDER BY chunk)",
                  ToChunk);
}

Result<std::vector<std::uint8_t>> StateReader::Plan(std::int64_t chunk) {
  return QueryOne(
      connection_, "SELECT plan FROM plans WHERE chunk = ?", "plan of chunk " + std::to_string(chunk),
      [](const sqlite::Statement& row) {
        const std::span<const std::uint8_t> blob = row.Blob(0);
        return std::vector<std::uint8_t>(blob.begin(), blob.end());
      },
      chunk);
}

Result<std::vector<BatchRecord>> StateReader::Batches(std::int64_t chunk) {
  return QueryAll(connection_,
                  R"(
          SELECT batch, block, shard, samples, tokens, bytes, state, digest, quarantined, seconds
          FROM batches
          WHERE chunk = ?
          ORDER BY batch)",
                  ToBatch, chunk);
}

Result<std::vector<ShardRecord>> StateReader::Shards(std::int64_t chunk) {
  return QueryAll(connection_,
                  R"(
          SELECT shard, first_batch, batches, samples, tokens, state, file, bytes, digest, quarantined, fingerprint,
          numerics, published_ms
          FROM shards
          WHERE chunk = ?
          ORDER BY shard)",
                  ToShard, chunk);
}

Result<std::vector<SampleRecord>> StateReader::Samples(std::int64_t chunk) {
  return QueryAll(connection_,
                  R"(
          SELECT sample_id, variant, batch, position, tokens, supervised_tokens, turn, source
          FROM samples
          WHERE sample_id >= (SELECT first_sample
          FROM chunks
          WHERE chunk = ?1) AND sample_id < (SELECT first_sample + rows
          FROM chunks
          WHERE chunk = ?1) AND chunk = ?1
          ORDER BY sample_id, variant)",
                  ToSample, chunk);
}

Result<std::vector<ShardStateCount>> StateReader::ShardsByState() {
  return QueryAll(connection_, "SELECT state, shards, samples, tokens, bytes FROM shards_by_state",
                  [](const sqlite::Statement& row) {
                    return ShardStateCount{.state = ToShardState(row.Text(0)),
                                           .shards = row.Integer(1),
                                           .samples = row.Integer(2),
                                           .tokens = row.Integer(3),
                                           .bytes = row.Integer(4)};
                  });
}

Result<ShardStateCount> StateReader::DiscardedShards() {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ShardStateCount> counts, ShardsByState());
  for (const ShardStateCount& count : counts) {
    if (count.state == ShardState::kDiscarded) return count;
  }
  return ShardStateCount{.state = ShardState::kDiscarded};
}

Result<std::vector<SamplePlace>> StateReader::FindSample(std::int64_t sample_id) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<SamplePlace> places, QueryAll(connection_,
                                                                       R"(
          SELECT sample_id, variant, stage, chunk, batch, block, shard, position, tokens, supervised_tokens,
          turn, file, failed_in, reason, source, row, line, byte_offset
          FROM sample_stage
          WHERE sample_id = ?
          ORDER BY variant)",
                                                                       ToPlace, sample_id));
  if (places.empty()) return NotFound("the run has no sample " + std::to_string(sample_id));
  return places;
}

Result<std::vector<FailureRecord>> StateReader::Failures(const FailureQuery& query) {
  return QueryAll(connection_,
                  R"(
          SELECT failure, stage, reason, message, source, row, line, byte_offset, sample_id, variant, chunk
          FROM failures
          WHERE failure > ?3 AND (?1 = '' OR stage = ?1) AND (?2 = '' OR reason = ?2)
          ORDER BY failure LIMIT ?4)",
                  ToFailure, query.stage, query.reason, query.after, query.limit);
}

Result<std::vector<FailureCount>> StateReader::FailuresByReason() {
  return QueryAll(
      connection_, "SELECT stage, reason, failures, example FROM failures_by_reason", [](const sqlite::Statement& row) {
        return FailureCount{
            .stage = row.Text(0), .reason = row.Text(1), .failures = row.Integer(2), .example = row.Text(3)};
      });
}

Result<std::vector<ReportCounter>> StateReader::MaskReport() {
  return QueryAll(connection_, "SELECT counter, count FROM mask_report", [](const sqlite::Statement& row) {
    return ReportCounter{.counter = row.Text(0), .count = row.Integer(1)};
  });
}

}  // namespace draftmill
