// Writes one shard file, batch by batch, so that a kill at any moment costs at most the batches that had no row yet.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto writer, ShardWriter::Open(file_system, work_folder, source, rows_of_this_shard));
//   for (std::int64_t batch : writer->missing()) {
//     DRAFTMILL_ASSIGN_OR_RETURN(WrittenBatch written, writer->WriteBatch(states_of(batch)));
//     ... the row of the batch, with written.digest, goes into state.db ...
//   }
//   DRAFTMILL_ASSIGN_OR_RETURN(PublishedShard shard, writer->Publish());
//   ... the row of the shard goes into state.db ...
//
// The file is laid out as `*.partial` before the first batch: header, ids, mask. Each batch is written in its place and
// synced before WriteBatch returns; Publish fills sample_state and checksum, syncs, renames and syncs the folder. What
// is written depends on the source and the states alone, not on the order of the batches, interruptions or threads.
//
// Identity is checked here for the last time: a batch whose keys or token hashes are not those of the plan is refused.
// Threads: one at a time. Errors: kCorrupt names the sample (nothing was written for it; compute the batch again),
// kDiskFull leaves all written batches good (call again when there is space), kIo.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "formats/published_file.h"
#include "formats/records.h"
#include "formats/shard.h"
#include "stages/extract/extractor.h"
#include "stages/extract/plan.h"
#include "state/file_system.h"

namespace draftmill {

/// What a shard is made from. What it points to must outlive the writer.
struct ShardSource {
  const TokenizedChunk* chunk = nullptr;
  const ChunkPlan* plan = nullptr;
  const ShardConvention* convention = nullptr;
  std::int64_t shard = 0;  ///< index in plan->shards
};

/// A batch that is on the disk, as its row says it.
struct WrittenBatch {
  std::int64_t batch = 0;  ///< index in the chunk's plan
  Hash128 digest;
  friend bool operator==(const WrittenBatch&, const WrittenBatch&) = default;
};

/// A shard that was published, as its row and the manifest say it.
struct PublishedShard {
  PublishedFile file;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::vector<WrittenBatch> batches;
  std::vector<SampleKey> quarantined;  ///< samples whose states were not finite
};

class ShardWriter {
 public:
  /// Opens the shard's `*.partial`. `recorded` are the batches that have a row: each is read and kept if its digest
  /// holds; the others become missing. A partial file of another layout (another plan, model or convention) is begun
  /// anew. An already published file of that name is not touched.
  static Result<std::unique_ptr<ShardWriter>> Open(FileSystem& file_system, const std::string& work_folder,
                                                   const ShardSource& source, std::span<const WrittenBatch> recorded);

  /// The plan indices of the batches that are still to be written, ascending. Those of `recorded` that stand here had
  /// damaged or lost bytes: their rows no longer hold.
  std::vector<std::int64_t> missing() const;

  /// Checks identity and sizes, writes the batch in its place and syncs. A batch that was written before is replaced.
  Result<WrittenBatch> WriteBatch(const BatchStates& states);

  /// Publishes the file; nothing may be missing. Only once.
  Result<PublishedShard> Publish();

 private:
  /// One batch of the shard.
  struct Slot {
    bool written = false;
    Hash128 digest;
  };

  ShardWriter(FileSystem& file_system, std::string path, const ShardSource& source, ShardLayout layout);

  Status Create();
  /// True where the partial file is this shard's; then `recorded` was looked through.
  Result<bool> Resume(std::span<const WrittenBatch> recorded);
  Status CheckIdentity(const BatchStates& states, const ShardBatch& batch) const;
  Status HashStates(const BatchStates& states, const ShardBatch& batch, Slot& slot);
  /// Both at once where a batch is large: on a fast disk neither may wait for the other.
  Status HashAndWrite(const BatchStates& states, const ShardBatch& batch, Slot& slot);
  std::string Context(std::int64_t batch) const;

  FileSystem& file_system_;
  const std::string path_;  // of the published file
  const ShardSource source_;
  const ShardLayout layout_;
  std::unique_ptr<WritableFile> file_;
  std::vector<Slot> slots_;                 // [B]
  std::vector<std::uint8_t> sample_state_;  // [N]
  std::vector<std::uint64_t> checksum_;     // [N]
  bool sync_failed_ = false;
};

/// Checks a published file that has no row against its source: header and tail must be exactly what this run would
/// write, and every checksum must hold. kCorrupt says what differs; such a file is removed and made anew.
Result<PublishedShard> AdoptShard(FileSystem& file_system, const std::string& work_folder, const ShardSource& source);

/// Deletes a published shard's file durably; success where there is none. Its row must say so before.
Status DiscardShard(FileSystem& file_system, const std::string& work_folder, const std::string& file);

/// Makes a published shard with damaged batches a partial one again, so that Open can keep its good batches. The
/// shard's row and the manifest must be gone before. Success where it was done already.
Status ReopenShard(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk, std::int64_t shard);

}  // namespace draftmill
