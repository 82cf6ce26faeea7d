// The one writer of state.db: a thread that owns the only writing connection and does every commit and checkpoint.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto state, StateWriter::Open(work_folder, {.create = true}));
//   DRAFTMILL_ASSIGN_OR_RETURN(const RunRecord run, state->BeginRun({...}));
//   state->PutWrittenBatch({...});                                  // queued, returns at once
//   DRAFTMILL_RETURN_IF_ERROR(state->Wait(state->PutPlan({...})));  // returns when it is durable
//   DRAFTMILL_RETURN_IF_ERROR(state->Close());
//
// Writes are applied in the order in which they were queued; all that wait when a commit begins share it (group
// commit). The queue is bounded by bytes and number: a caller waits where it is full. A write that fails takes back its
// whole group, and from then on every Wait, Flush and Close returns that failure and later writes are dropped: the run
// fails. With `retry_full_disk` a full disk is waited out instead.
//
// What a write means stands in write_operations.h; anything not offered here is queued with Submit. Reading is
// state_reader.h's business: it sees what is durable.
//
// Threads: every function from any thread, Open, Close and the destructor from one. Errors of Open: schema.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "state/file_system.h"
#include "state/sqlite.h"
#include "state/state_records.h"

namespace draftmill {

struct StateWriterOptions {
  bool create = false;  ///< make the database where there is none
  FileSystem* files = &RealFileSystem();
  Clock* clock = &RealClock();
  std::int64_t max_queued_bytes = std::int64_t{64} << 20;
  std::int64_t max_queued_writes = 4096;
  /// Asked in the writer's thread when a commit met a full disk, may wait itself; true tries the commit again.
  std::function<bool(const Status&)> retry_full_disk{};
};

struct WritableDatabase;

class StateWriter {
  /// Only Open makes one.
  struct OpenKey {};

 public:
  /// A change within a transaction of the writer. It may be called again after a rollback.
  using Write = std::function<Status(sqlite::Connection&)>;
  /// The number of a queued write, ascending.
  using Ticket = std::uint64_t;

  /// Opens `<work folder>/state.db`. The caller holds the run lock.
  static Result<std::unique_ptr<StateWriter>> Open(const std::string& work_folder, StateWriterOptions options);
  StateWriter(OpenKey, std::string path, WritableDatabase database, StateWriterOptions options);
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;
  /// As Close where that was not called; its failure is lost.
  ~StateWriter();

  /// The last writer did not close the database: it was recovered, and checked where that could have harmed it.
  bool after_unclean_end() const { return after_unclean_end_; }

  /// Queues a write; `bytes` is about what it holds in memory.
  Ticket Submit(Write write, std::int64_t bytes = 256);
  /// Returns when that write and all before it are durable, or with the failure.
  Status Wait(Ticket ticket);
  /// Waits for everything queued so far.
  Status Flush();
  /// The failure that stopped the writer, or success.
  Status failure() const;
  /// Flushes, checkpoints, and leaves one file that opens read-only anywhere (where another process reads it at that
  /// moment: a complete one in WAL mode). Nothing may be queued after it.
  Status Close();

  // --- Runs and stages; write_operations.h says what each does ------------------------------------------------------

  /// Waits until it is durable; the record comes back with its number, and with a name and a time where it had none.
  Result<RunRecord> BeginRun(RunRecord run);
  Ticket FinishRun(int exit_status, std::string summary);
  Ticket DeclareStages(std::vector<std::string> stages);
  Ticket SetStageState(std::string stage, StageState state);
  Ticket SetFingerprint(std::string stage, std::int64_t version, Fingerprint fingerprint);
  Ticket SetStageDone(std::string stage, std::int64_t done);
  Ticket SetFact(std::string name, std::string value);
  /// Of the run that BeginRun began, now.
  Ticket AddEvent(EventLevel level, std::string text);
  Ticket AddThroughput(ThroughputRecord point);

  // --- Data -------------------------------------------------------------------------------------------------------

  Ticket PutSource(SourceRecord source);
  Ticket PutConversations(std::vector<ConversationRecord> conversations);
  Ticket PutChunk(IngestedChunkRecord chunk);
  Ticket AddFailures(std::vector<FailureRecord> failures);
  Ticket DropChunksFrom(std::int64_t chunks);
  Ticket PutTokenizedChunk(TokenizedChunkRecord chunk);
  Ticket PutPlan(ChunkPlanRecord plan);
  Ticket PutWrittenBatch(WrittenBatchRecord batch);
  Ticket PutPublishedShard(PublishedShardRecord shard);

  // --- Doing things again -----------------------------------------------------------------------------------------

  Ticket DropExtraction(std::int64_t chunk);
  Ticket RedoAllExtraction();
  Ticket RedoDiscardedShards();
  Ticket RedoAllTokenization();
  Ticket RedoIngest();
  Ticket MarkBatchesDamaged(std::int64_t chunk, std::vector<std::int64_t> batches);
  Ticket MarkShardDamaged(std::int64_t chunk, std::int64_t shard);
  Ticket MarkCorpusDamaged(std::int64_t chunk);
  Ticket MarkIngestedDamaged(std::int64_t chunk);

 private:
  struct Entry {
    Write write;
    std::int64_t bytes = 0;
  };

  void RunThread();
  Status CommitGroup(const std::vector<Entry>& group);
  Status CommitOnce(const std::vector<Entry>& group);

  const std::string path_;
  const StateWriterOptions options_;
  const bool after_unclean_end_;
  std::atomic<std::int64_t> run_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_;      ///< something was queued, or Close was called
  std::condition_variable progress_;  ///< something became durable, or failed
  std::deque<Entry> queue_;
  std::int64_t held_bytes_ = 0;  ///< queued and being committed
  std::int64_t held_writes_ = 0;
  Ticket queued_ = 0;
  Ticket durable_ = 0;
  Status failure_;
  bool closing_ = false;

  sqlite::Connection connection_;  ///< the thread's alone while it runs
  std::thread thread_;
};

}  // namespace draftmill
