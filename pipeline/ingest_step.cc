#include "pipeline/ingest_step.h"

#include <utility>
#include <vector>

#include "pipeline/failure_records.h"

namespace draftmill {
namespace {

/// Hands what ingest tells to the state database and the monitor.
class StateSink : public IngestSink {
 public:
  StateSink(StateWriter& state, RunMonitor& monitor) : state_(state), monitor_(monitor) {}

  Status AddChunk(const IngestedChunkFacts& facts, std::vector<ConversationPlace> conversations) override {
    std::vector<ConversationRecord> records;
    records.reserve(conversations.size());
    for (const ConversationPlace& place : conversations) {
      records.push_back({.sample_id = place.sample_id,
                         .chunk = place.chunk,
                         .source = place.place.source,
                         .row = place.place.row,
                         .line = place.place.line,
                         .byte_offset = place.place.byte_offset,
                         .content_hash = place.content_hash});
    }
    state_.PutConversations(std::move(records));
    state_.PutChunk({.chunk = facts.chunk,
                     .epoch = 0,
                     .first_sample = facts.first_sample,
                     .rows = facts.rows,
                     .bytes = facts.bytes,
                     .digest = ToHex(facts.digest)});
    return state_.failure();
  }

  Status AddFailures(std::vector<Failure> failures) override {
    state_.AddFailures(FailureRecords(failures, /*chunk=*/-1));
    return state_.failure();
  }

  void ReportProgress(const IngestProgress& progress) override {
    state_.SetStageDone("ingest", progress.bytes_read);
    monitor_.Set("ingest", progress.bytes_read, progress.bytes_total, progress.rows_read, progress.bytes_read);
  }

 private:
  StateWriter& state_;
  RunMonitor& monitor_;
};

}  // namespace

Result<IngestSummary> RunIngest(const IngestOptions& options, FileSystem& files, const std::string& work_folder,
                                StateWriter& state, RunMonitor& monitor, const std::function<bool()>& should_stop) {
  state.SetStageState("ingest", StageState::kRunning);
  DRAFTMILL_RETURN_IF_ERROR(state.Wait(state.RedoIngest()));
  monitor.SetActivity("ingest", StageActivity::kRunning);
  StateSink sink(state, monitor);
  DRAFTMILL_ASSIGN_OR_RETURN(IngestSummary summary, Ingest(options, files, work_folder, sink, should_stop));
  for (std::size_t i = 0; i < summary.sources.size(); ++i) {
    const SourceSummary& source = summary.sources[i];
    state.PutSource({.source = static_cast<std::int64_t>(i),
                     .epoch = 0,
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
  state.DropChunksFrom(static_cast<std::int64_t>(summary.chunks.size()));
  DRAFTMILL_RETURN_IF_ERROR(state.Wait(state.SetStageState("ingest", StageState::kDone)));
  monitor.SetActivity("ingest", StageActivity::kDone);
  return summary;
}

}  // namespace draftmill
