#include "state/store.h"

#include <array>
#include <iterator>
#include <utility>

#include "base/hash.h"
#include "base/start_threads.h"
#include "state/schema.h"
#include "state/write_operations.h"
#include "state/written_at.h"

namespace draftmill {
namespace {

constexpr std::array<std::string_view, 32> kAdjectives = {
    "agile", "amber",  "brave", "brisk", "calm",   "clear",  "crisp",  "deft",  "eager", "early", "fair",
    "fleet", "gentle", "glad",  "keen",  "kind",   "light",  "lively", "lucid", "mild",  "neat",  "nimble",
    "proud", "quick",  "quiet", "sharp", "steady", "sturdy", "swift",  "tidy",  "warm",  "wise"};
constexpr std::array<std::string_view, 32> kAnimals = {
    "badger", "beaver", "bison",  "crane",  "curlew",  "dipper",  "dunlin",  "egret",  "falcon", "finch",  "gannet",
    "grebe",  "hare",   "heron",  "ibex",   "jackdaw", "kestrel", "lapwing", "linnet", "lynx",   "marten", "merlin",
    "osprey", "otter",  "petrel", "plover", "raven",   "siskin",  "stoat",   "swift",  "tern",   "wren"};

std::int64_t BytesOf(const std::vector<FailureRecord>& failures) {
  std::int64_t bytes = 0;
  for (const FailureRecord& failure : failures) {
    bytes += static_cast<std::int64_t>(sizeof(FailureRecord) + failure.message.size());
  }
  return bytes;
}

template <typename Record>
std::int64_t BytesOf(const std::vector<Record>& records) {
  return static_cast<std::int64_t>(records.size() * sizeof(Record));
}

/// A name for a run, made of its facts: "tidy-heron".
std::string FriendlyName(const RunRecord& run) {
  const std::uint64_t hash =
      HashBytes64(run.host + '/' + run.boot_id + '/' + std::to_string(run.pid) + '/' + std::to_string(run.started_ms));
  std::string name(kAdjectives[hash % kAdjectives.size()]);
  name += '-';
  name += kAnimals[(hash / kAdjectives.size()) % kAnimals.size()];
  return name;
}

}  // namespace

Result<std::unique_ptr<StateWriter>> StateWriter::Open(const std::string& work_folder, StateWriterOptions options) {
  const std::string path = StateDatabasePath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(WritableDatabase database, OpenForWriting(*options.files, path, options.create));
  auto writer = std::make_unique<StateWriter>(OpenKey{}, path, std::move(database), std::move(options));
  DRAFTMILL_ASSIGN_OR_RETURN(writer->thread_, StartThread([self = writer.get()] { self->RunThread(); }));
  return writer;
}

StateWriter::StateWriter(OpenKey, std::string path, WritableDatabase database, StateWriterOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      after_unclean_end_(database.after_unclean_end),
      connection_(std::move(database.connection)) {}

StateWriter::~StateWriter() { static_cast<void>(Close()); }

StateWriter::Ticket StateWriter::Submit(Write write, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  // A write larger than the whole bound passes when nothing else is held.
  progress_.wait(lock, [&] {
    return !failure_.ok() || held_writes_ == 0 ||
           (held_bytes_ + bytes <= options_.max_queued_bytes && held_writes_ < options_.max_queued_writes);
  });
  DRAFTMILL_CHECK(!closing_, "a write to the state database after Close");
  ++queued_;
  if (!failure_.ok()) return queued_;
  held_bytes_ += bytes;
  ++held_writes_;
  queue_.push_back({std::move(write), bytes});
  work_.notify_one();
  return queued_;
}

Status StateWriter::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return durable_ >= ticket || !failure_.ok(); });
  return durable_ >= ticket ? OkStatus() : failure_;
}

Status StateWriter::Flush() {
  Ticket last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = queued_;
  }
  return Wait(last);
}

Status StateWriter::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status StateWriter::Close() {
  if (!thread_.joinable()) return failure();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    work_.notify_one();
  }
  thread_.join();
  DRAFTMILL_RETURN_IF_ERROR(failure());
  const Status status = CloseForWriting(connection_);
  connection_ = {};
  // A reader in another process keeps the file in WAL mode, where it is as complete.
  return status.code() == StatusCode::kConflict ? OkStatus() : status;
}

void StateWriter::RunThread() {
  for (;;) {
    std::vector<Entry> group;
    std::int64_t group_bytes = 0;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return !queue_.empty() || closing_; });
      if (queue_.empty()) return;
      group.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
      queue_.clear();
    }
    for (const Entry& entry : group) group_bytes += entry.bytes;
    const Status status = CommitGroup(group);
    // A failure harms nothing but the next start after a kill, which then checks every page; a full disk and the like
    // show at the next commit.
    if (status.ok()) static_cast<void>(RememberWritten(*options_.files, connection_, path_));
    const std::lock_guard lock(mutex_);
    held_bytes_ -= group_bytes;
    held_writes_ -= static_cast<std::int64_t>(group.size());
    if (status.ok()) {
      durable_ += group.size();
    } else {
      failure_ = status.WithContext("the state database could not be written");
      queue_.clear();
    }
    progress_.notify_all();
    if (!status.ok()) return;
  }
}

Status StateWriter::CommitGroup(const std::vector<Entry>& group) {
  for (;;) {
    Status status = CommitOnce(group);
    if (status.code() != StatusCode::kDiskFull || !options_.retry_full_disk) return status;
    if (!options_.retry_full_disk(status)) return status;
  }
}

Status StateWriter::CommitOnce(const std::vector<Entry>& group) {
  DRAFTMILL_ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(connection_));
  for (const Entry& entry : group) DRAFTMILL_RETURN_IF_ERROR(entry.write(connection_));
  return transaction.Commit();
}

Result<RunRecord> StateWriter::BeginRun(RunRecord run) {
  if (run.started_ms == 0) run.started_ms = options_.clock->UnixMs();
  if (run.name.empty()) run.name = FriendlyName(run);
  // Waited for below, so that the write may use what lies on this stack.
  const Ticket ticket = Submit([&run](sqlite::Connection& db) -> Status {
    DRAFTMILL_ASSIGN_OR_RETURN(run.run, operations::BeginRun(db, run));
    return OkStatus();
  });
  DRAFTMILL_RETURN_IF_ERROR(Wait(ticket));
  run_ = run.run;
  return run;
}

StateWriter::Ticket StateWriter::FinishRun(int exit_status, std::string summary) {
  return Submit([run = run_.load(), now = options_.clock->UnixMs(), exit_status, summary = std::move(summary)](
                    auto& db) { return operations::FinishRun(db, run, now, exit_status, summary); });
}

StateWriter::Ticket StateWriter::DeclareStages(std::vector<std::string> stages) {
  return Submit([stages = std::move(stages)](auto& db) { return operations::DeclareStages(db, stages); });
}

StateWriter::Ticket StateWriter::SetStageState(std::string stage, StageState state) {
  return Submit([stage = std::move(stage), state, now = options_.clock->UnixMs()](auto& db) {
    return operations::SetStageState(db, stage, state, now);
  });
}

StateWriter::Ticket StateWriter::SetFingerprint(std::string stage, std::int64_t version, Fingerprint fingerprint) {
  return Submit([stage = std::move(stage), version, fingerprint = std::move(fingerprint)](auto& db) {
    return operations::SetFingerprint(db, stage, version, fingerprint);
  });
}

StateWriter::Ticket StateWriter::SetStageDone(std::string stage, std::int64_t done) {
  return Submit([stage = std::move(stage), done](auto& db) { return operations::SetStageDone(db, stage, done); });
}

StateWriter::Ticket StateWriter::SetFact(std::string name, std::string value) {
  return Submit(
      [name = std::move(name), value = std::move(value)](auto& db) { return operations::SetFact(db, name, value); });
}

StateWriter::Ticket StateWriter::AddEvent(EventLevel level, std::string text) {
  EventRecord event{.run = run_, .at_ms = options_.clock->UnixMs(), .level = level, .text = std::move(text)};
  return Submit([event = std::move(event)](auto& db) { return operations::AddEvent(db, event); });
}

StateWriter::Ticket StateWriter::AddThroughput(ThroughputRecord point) {
  if (point.run == 0) point.run = run_;
  if (point.at_ms == 0) point.at_ms = options_.clock->UnixMs();
  return Submit([point = std::move(point)](auto& db) { return operations::AddThroughput(db, point); });
}

StateWriter::Ticket StateWriter::PutSource(SourceRecord source) {
  return Submit([source = std::move(source)](auto& db) { return operations::PutSource(db, source); });
}

StateWriter::Ticket StateWriter::PutConversations(std::vector<ConversationRecord> conversations) {
  const std::int64_t bytes = BytesOf(conversations);
  return Submit([rows = std::move(conversations)](auto& db) { return operations::PutConversations(db, rows); }, bytes);
}

StateWriter::Ticket StateWriter::PutChunk(IngestedChunkRecord chunk) {
  return Submit([chunk = std::move(chunk)](auto& db) { return operations::PutChunk(db, chunk); });
}

StateWriter::Ticket StateWriter::AddFailures(std::vector<FailureRecord> failures) {
  const std::int64_t bytes = BytesOf(failures);
  return Submit([rows = std::move(failures)](auto& db) { return operations::AddFailures(db, rows); }, bytes);
}

StateWriter::Ticket StateWriter::DropChunksFrom(std::int64_t chunks) {
  return Submit([chunks](auto& db) { return operations::DropChunksFrom(db, chunks); });
}

StateWriter::Ticket StateWriter::PutTokenizedChunk(TokenizedChunkRecord chunk) {
  const std::int64_t bytes = BytesOf(chunk.failures);
  return Submit([chunk = std::move(chunk)](auto& db) { return operations::PutTokenizedChunk(db, chunk); }, bytes);
}

StateWriter::Ticket StateWriter::PutPlan(ChunkPlanRecord plan) {
  const std::int64_t bytes = BytesOf(plan.plan) + BytesOf(plan.batches) + BytesOf(plan.shards) + BytesOf(plan.samples);
  return Submit([plan = std::move(plan)](auto& db) { return operations::PutPlan(db, plan); }, bytes);
}

StateWriter::Ticket StateWriter::PutWrittenBatch(WrittenBatchRecord batch) {
  const std::int64_t bytes = BytesOf(batch.failures);
  return Submit([batch = std::move(batch)](auto& db) { return operations::PutWrittenBatch(db, batch); }, bytes);
}

StateWriter::Ticket StateWriter::PutPublishedShard(PublishedShardRecord shard) {
  return Submit([shard = std::move(shard), now = options_.clock->UnixMs()](auto& db) {
    return operations::PutPublishedShard(db, shard, now);
  });
}

StateWriter::Ticket StateWriter::DropExtraction(std::int64_t chunk) {
  return Submit([chunk](auto& db) { return operations::DropExtraction(db, chunk); });
}

StateWriter::Ticket StateWriter::RedoAllExtraction() { return Submit(&operations::RedoAllExtraction); }
StateWriter::Ticket StateWriter::RedoDiscardedShards() { return Submit(&operations::RedoDiscardedShards); }
StateWriter::Ticket StateWriter::RedoAllTokenization() { return Submit(&operations::RedoAllTokenization); }
StateWriter::Ticket StateWriter::RedoIngest() { return Submit(&operations::RedoIngest); }

StateWriter::Ticket StateWriter::MarkBatchesDamaged(std::int64_t chunk, std::vector<std::int64_t> batches) {
  const std::int64_t bytes = BytesOf(batches);
  return Submit(
      [chunk, batches = std::move(batches)](auto& db) { return operations::MarkBatchesDamaged(db, chunk, batches); },
      bytes);
}

StateWriter::Ticket StateWriter::MarkShardDamaged(std::int64_t chunk, std::int64_t shard) {
  return Submit([chunk, shard](auto& db) { return operations::MarkShardDamaged(db, chunk, shard); });
}

StateWriter::Ticket StateWriter::MarkCorpusDamaged(std::int64_t chunk) {
  return Submit([chunk](auto& db) { return operations::MarkCorpusDamaged(db, chunk); });
}

StateWriter::Ticket StateWriter::MarkIngestedDamaged(std::int64_t chunk) {
  return Submit([chunk](auto& db) { return operations::MarkIngestedDamaged(db, chunk); });
}

}  // namespace draftmill
