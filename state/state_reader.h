// Looks into state.db: for status, why, inspect, and for the pipeline when it resumes.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder));
//   DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<ProgressRecord> rows, state.Progress());
//
// Read-only in every way; works while a run writes (and then sees what is durable at each call) and on a finished
// database anywhere. Lists are bounded by a chunk or by a page, but for Chunks, Sources and Runs, which are small. A
// reader that stays open keeps a run from folding its log in when it ends: open, look, and let go.
//
// Threads: one at a time. Errors: schema.h; kNotFound where the named thing is not there, kCorrupt where a stored value
// is none that this program writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "state/file_system.h"
#include "state/sqlite.h"
#include "state/state_records.h"

namespace draftmill {

/// Which failures are asked for.
struct FailureQuery {
  std::string stage{};     ///< empty: any
  std::string reason{};    ///< empty: any
  std::int64_t after = 0;  ///< the last `failure` of the page before
  std::int64_t limit = 100;
};

class StateReader {
 public:
  static Result<StateReader> Open(const std::string& work_folder, FileSystem& files = RealFileSystem());

  // --- Runs and stages ----------------------------------------------------------------------------------------------

  /// All runs, the first one first.
  Result<std::vector<RunRecord>> Runs();
  /// The last run begun; nothing where there is none.
  Result<std::optional<RunRecord>> LastRun();
  Result<std::vector<StageRecord>> Stages();
  Result<StageRecord> Stage(std::string_view stage);
  Result<std::vector<ProgressRecord>> Progress();
  /// The value of SetFact; nothing where it was never set.
  Result<std::optional<std::string>> Fact(std::string_view name);
  /// Events after that number, in order.
  Result<std::vector<EventRecord>> Events(std::int64_t after, std::int64_t limit);

  // --- Data ---------------------------------------------------------------------------------------------------------

  Result<std::vector<SourceRecord>> Sources();
  Result<std::vector<ChunkRecord>> Chunks();
  /// The plan as it was stored; kNotFound where the chunk has none.
  Result<std::vector<std::uint8_t>> Plan(std::int64_t chunk);
  Result<std::vector<BatchRecord>> Batches(std::int64_t chunk);
  Result<std::vector<ShardRecord>> Shards(std::int64_t chunk);
  /// Ascending (sample_id, variant).
  Result<std::vector<SampleRecord>> Samples(std::int64_t chunk);
  Result<std::vector<ShardStateCount>> ShardsByState();
  /// The discarded ones among them: all 0 where there are none.
  Result<ShardStateCount> DiscardedShards();

  /// Where the samples of a conversation stand, by variant; kNotFound where there is no such conversation.
  Result<std::vector<SamplePlace>> FindSample(std::int64_t sample_id);

  Result<std::vector<FailureRecord>> Failures(const FailureQuery& query);
  Result<std::vector<FailureCount>> FailuresByReason();

  /// What the tokenize stage counted over the whole corpus, in its own order; empty before any chunk is tokenized.
  Result<std::vector<ReportCounter>> MaskReport();

  /// For queries of one's own.
  sqlite::Connection& connection() { return connection_; }

 private:
  explicit StateReader(sqlite::Connection connection) : connection_(std::move(connection)) {}
  Result<StageRecord> WithParts(StageRecord stage);

  sqlite::Connection connection_;
};

}  // namespace draftmill
