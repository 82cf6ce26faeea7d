#include "pipeline/run/ingest_step.h"

#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/run/failure_records.h"
#include "pipeline/verify/recorded_files.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/rejected_rows.h"

namespace draftmill {
namespace {

IngestedChunkRecord ChunkRecordOf(const IngestedChunkFacts& facts) {
  return {.chunk = facts.chunk,
          .epoch = facts.epoch,
          .first_sample = facts.first_sample,
          .rows = facts.rows,
          .bytes = facts.bytes,
          .digest = ToHex(facts.digest)};
}

ConversationRecord ConversationRecordOf(std::int64_t sample_id, std::int32_t chunk, const RowPlace& place,
                                        const Hash128& content_hash) {
  return {.sample_id = sample_id,
          .chunk = chunk,
          .source = place.source,
          .row = place.row,
          .line = place.line,
          .byte_offset = place.byte_offset,
          .content_hash = content_hash};
}

/// Tells the monitor how far ingest is; the database learns of the rows when they stand.
class TotalsSink : public IngestSink {
 public:
  explicit TotalsSink(const IngestStep& step) : state_(step.state), step_(step) {}

  Status BeforeWriting() override { return step_.wait_for_space(); }
  Status AddChunk(const IngestedChunkFacts&, std::vector<ConversationPlace>) override { return state_.failure(); }
  Status AddFailures(std::vector<Failure>) override { return state_.failure(); }
  void ReportProgress(const IngestProgress& progress) override {
    state_.SetStageDone("ingest", progress.bytes_read);
    step_.monitor.Set("ingest", progress.bytes_read, progress.bytes_total, progress.rows_read, progress.bytes_read);
  }

 protected:
  StateWriter& state_;

 private:
  const IngestStep& step_;
};

/// As TotalsSink, and hands the rows to the database as they come: a first ingest need not read them back.
class StateSink final : public TotalsSink {
 public:
  using TotalsSink::TotalsSink;

  Status AddChunk(const IngestedChunkFacts& facts, std::vector<ConversationPlace> conversations) override {
    std::vector<ConversationRecord> records;
    records.reserve(conversations.size());
    for (const ConversationPlace& place : conversations) {
      records.push_back(ConversationRecordOf(place.sample_id, place.chunk, place.place, place.content_hash));
    }
    state_.PutConversations(std::move(records));
    state_.PutChunk(ChunkRecordOf(facts));
    return state_.failure();
  }

  Status AddFailures(std::vector<Failure> failures) override {
    state_.AddFailures(FailureRecords(failures, /*chunk=*/-1));
    return state_.failure();
  }
};

Status RecordChunk(FileSystem& files, const std::string& work_folder, const IngestedChunkFacts& facts,
                   StateWriter& state) {
  DRAFTMILL_ASSIGN_OR_RETURN(const IngestedChunk chunk,
                             ReadIngestedChunk(files, work_folder, facts.chunk, facts.digest));
  std::vector<ConversationRecord> records;
  records.reserve(chunk.rows.size());
  for (const IngestedRow& row : chunk.rows) {
    records.push_back(ConversationRecordOf(row.sample_id, facts.chunk, row.place, row.content_hash));
  }
  state.PutConversations(std::move(records));
  state.PutChunk(ChunkRecordOf(facts));
  return state.failure();
}

Result<Failure> FailureOf(const json::Value& row) {
  const auto text = [&](std::string_view name) {
    const json::Value* value = row.Find(name);
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  const auto number = [&](std::string_view name) {
    const json::Value* value = row.Find(name);
    return value != nullptr && value->is_integer() ? value->as_integer() : std::int64_t{-1};
  };
  Failure failure{.stage = "ingest",
                  .reason = text("reason"),
                  .message = text("message"),
                  .place = {.source = static_cast<std::int32_t>(number("source")),
                            .row = number("row"),
                            .line = number("line"),
                            .byte_offset = number("byte_offset")}};
  if (failure.reason.empty() || failure.place.source < 0 || failure.place.row < 0) {
    return Corrupt("ingested/rejected.jsonl.zst: a line without reason or place");
  }
  return failure;
}

Status RecordRejected(FileSystem& files, const std::string& work_folder, StateWriter& state) {
  constexpr std::size_t kAtOnce = 1000;
  std::vector<Failure> failures;
  DRAFTMILL_RETURN_IF_ERROR(ForEachRejectedRow(files, work_folder, [&](const json::Value& row) -> Status {
    DRAFTMILL_ASSIGN_OR_RETURN(Failure failure, FailureOf(row));
    failures.push_back(std::move(failure));
    if (failures.size() < kAtOnce) return OkStatus();
    state.AddFailures(FailureRecords(std::exchange(failures, {}), /*chunk=*/-1));
    return state.failure();
  }));
  state.AddFailures(FailureRecords(failures, /*chunk=*/-1));
  return state.failure();
}

/// Everything that is known only when ingest has ended.
Status RecordEnd(FileSystem& files, const std::string& work_folder, const IngestSummary& summary, StateWriter& state) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < summary.sources.size(); ++i) {
    const SourceSummary& source = summary.sources[i];
    bytes += source.bytes;
    state.PutSource({.source = static_cast<std::int64_t>(i),
                     .epoch = source.epoch,
                     .path = source.path,
                     .format = source.format,
                     .bytes = source.bytes,
                     .content_hash = ToHex(source.content_hash),
                     .modified_ns = source.modified_ns,
                     .inode = source.inode,
                     .rows = source.rows,
                     .kept = source.kept,
                     .duplicates = source.duplicates,
                     .rejected = source.rejected,
                     .not_taken = source.not_taken});
  }
  state.SetStageDone("ingest", bytes);
  state.DropChunksFrom(static_cast<std::int64_t>(summary.chunks.size()));
  for (const char* name : {"ingested/index.json", "ingested/rejected.jsonl.zst"}) {
    DRAFTMILL_RETURN_IF_ERROR(RecordFile(files, work_folder, name, state));
  }
  return state.Wait(state.SetStageState("ingest", StageState::kDone));
}

/// The new folder takes the old one's place. Between the two there is none, which a later run mends by ingesting again.
Status ReplaceIngested(FileSystem& files, const std::string& work_folder, const std::string& new_work_folder) {
  const std::string folder = IngestedFolder(work_folder);
  if (files.Exists(folder)) {
    // The index goes durably before anything that it lists, so that it never stands beside half a set of chunks.
    DRAFTMILL_RETURN_IF_ERROR(files.Remove(JoinPath(folder, "index.json")));
    DRAFTMILL_RETURN_IF_ERROR(files.SyncFolder(folder));
    DRAFTMILL_RETURN_IF_ERROR(files.RemoveTree(folder));
  }
  DRAFTMILL_RETURN_IF_ERROR(files.Rename(IngestedFolder(new_work_folder), folder));
  DRAFTMILL_RETURN_IF_ERROR(files.SyncFolder(work_folder));
  return files.RemoveTree(new_work_folder);
}

}  // namespace

Result<IngestSummary> RunIngest(const IngestOptions& options, const IngestStep& step) {
  FileSystem& files = step.files;
  const std::string& work_folder = step.work_folder;
  StateWriter& state = step.state;
  const bool replaces = files.Exists(JoinPath(IngestedFolder(work_folder), "index.json"));
  state.SetStageState("ingest", StageState::kRunning);
  if (!replaces) state.RedoIngest();
  DRAFTMILL_RETURN_IF_ERROR(state.Flush());
  step.monitor.SetActivity("ingest", StageActivity::kRunning);
  TotalsSink totals(step);
  StateSink rows(step);
  const std::string new_work_folder = JoinPath(work_folder, "ingested.partial");
  DRAFTMILL_RETURN_IF_ERROR(files.RemoveTree(new_work_folder));
  DRAFTMILL_RETURN_IF_ERROR(files.MakeFolder(new_work_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(
      IngestSummary summary,
      Ingest(options, files, new_work_folder, replaces ? totals : static_cast<IngestSink&>(rows), step.should_stop));
  DRAFTMILL_RETURN_IF_ERROR(ReplaceIngested(files, work_folder, new_work_folder));
  if (replaces) {
    DRAFTMILL_RETURN_IF_ERROR(state.Wait(state.RedoIngest()));
    DRAFTMILL_RETURN_IF_ERROR(RecordIngested(files, work_folder, summary, state));
  } else {
    DRAFTMILL_RETURN_IF_ERROR(RecordEnd(files, work_folder, summary, state));
  }
  step.monitor.SetActivity("ingest", StageActivity::kDone);
  return summary;
}

Status RecordIngested(FileSystem& files, const std::string& work_folder, const IngestSummary& summary,
                      StateWriter& state) {
  for (const IngestedChunkFacts& chunk : summary.chunks) {
    DRAFTMILL_RETURN_IF_ERROR(RecordChunk(files, work_folder, chunk, state));
  }
  DRAFTMILL_RETURN_IF_ERROR(RecordRejected(files, work_folder, state));
  return RecordEnd(files, work_folder, summary, state);
}

}  // namespace draftmill
