// One pass of chunks through tokenize, plan, extract and write: what happens at each step of the flow graph
// (pipeline/flow/chunk_flow.h), with the state database kept in step.
//
// Resume is the normal case: a chunk that was tokenized is read back from corpus/, a batch that was written is kept, a
// published shard is left alone. The order of publication is always file first, durable, then row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shard.h"
#include "pipeline/flow/chunk_flow.h"
#include "pipeline/flow/disk_guard.h"
#include "pipeline/run/bad_rows.h"
#include "pipeline/run/run_monitor.h"
#include "stages/extract/extractor.h"
#include "stages/tokenize/tokenize_stage.h"
#include "stages/vocab_map/vocab_map.h"
#include "stages/write/shard_writer.h"
#include "state/file_system.h"
#include "state/store.h"

namespace draftmill {

/// What a pass works with. All of it outlives the pass.
struct ChunkPassContext {
  FileSystem* files = nullptr;
  std::string work_folder;
  StateWriter* state = nullptr;
  RunMonitor* monitor = nullptr;
  const TokenizeStage* tokenize = nullptr;
  std::string tokenize_fingerprint;
  Extractor* extractor = nullptr;               ///< nullptr: the pass ends with the vocabulary counts
  const ShardConvention* convention = nullptr;  ///< with an extractor
  PlanParameters plan_parameters;               ///< with an extractor
  std::string states_fingerprint;               ///< as shards carry it
  VocabCounter* vocab_counter = nullptr;        ///< nullptr: the map is up to date, nothing is counted
  BadRowJudge* bad_rows = nullptr;
  DiskGuard* disk = nullptr;
  bool discards_shards = false;  ///< each shard's file is deleted once its row is durable
  std::function<bool()> should_stop;
};

class ChunkPass {
 public:
  /// `chunks` are those to pass, as the database knows them.
  ChunkPass(ChunkPassContext context, std::vector<ChunkRecord> chunks);
  ~ChunkPass();

  /// Sends all chunks through and waits until every row is durable.
  Status Run(const ChunkFlowLimits& limits, ChunkFlowPeaks* peaks);

 private:
  struct OpenShard;

  Status Tokenize(ChunkWork& work);
  Status TokenizeRows(ChunkWork& work, const ChunkRecord& record);
  /// For hidden states of so many bytes, or for what little else is written.
  Status WaitForSpace(std::int64_t states_bytes);
  Status ReadTokenized(ChunkWork& work, const ChunkRecord& record);
  Status Account(ChunkWork& work);
  Status RecordTokenized(const ChunkWork& work);
  Status Plan(ChunkWork& work, const ChunkRecord& record);
  Status RemoveUnplanned(const ChunkWork& work);
  Status FindMissing(ChunkWork& work);
  Result<bool> Adopt(const ChunkWork& work, std::int64_t shard);
  Status Extract(const ChunkWork& work, const std::function<Status(BatchStates)>& emit);
  /// The next block from `block` on that has a batch to be computed, once the disk has room for it.
  Result<std::optional<BlockRequest>> NextBlock(const ChunkWork& work, std::size_t& block);
  Status Write(const ChunkWork& work, const BatchStates& states);
  void WatchStates(const ChunkWork& work, const BatchStates& states);
  void WatchDisk(const WriterSpan& span);
  Status OpenShardFor(const ChunkWork& work, std::int64_t shard);
  Status PublishOpenShard(const ChunkWork& work);
  Status Finish(const ChunkWork& work);
  Status RecordPublished(const ChunkWork& work, std::int64_t shard, const PublishedShard& published);
  ShardSource SourceOf(const ChunkWork& work, std::int64_t shard) const;
  const ChunkRecord& RecordOf(const ChunkWork& work) const { return chunks_[work.position]; }

  const ChunkPassContext context_;
  const std::vector<ChunkRecord> chunks_;
  std::vector<std::unique_ptr<TokenizeStage::LocalState>> idle_states_;  ///< of tokenize, one per thread that ran it
  std::mutex idle_states_mutex_;
  // The writer's thread alone.
  std::unique_ptr<OpenShard> open_shard_;
  std::vector<double> first_norms_;  ///< of this start's first batch, by kept layer
  HeadAgreement agreement_;          ///< of this start's batches
  bool norms_reported_ = false;
  bool agreement_reported_ = false;
  bool disk_is_slower_ = false;
};

}  // namespace draftmill
