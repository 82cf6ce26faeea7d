// Whether a work folder's files are what its state database says: `draftmill verify`.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(StateReader state, StateReader::Open(work_folder));
//   DRAFTMILL_ASSIGN_OR_RETURN(VerifyReport report, VerifyWork(files, state, work_folder, {.deep = true}));
//   if (!report.ok()) DRAFTMILL_RETURN_IF_ERROR(MarkDamage(files, work_folder, writer, report));   // --repair
//
// Plain: every file is there, has its size, its header and side tensors fit the rows. Deep: every byte is read and
// every checksum is taken. Nothing is changed by looking; the folder must not be in use by a run. Memory: one chunk of
// the corpus, one shard's side tensors, a line a file.
//
// A fault of a file is a finding, not an error; errors are those of the database, and kCancelled. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "state/file_system.h"
#include "state/state_reader.h"
#include "state/store.h"

namespace draftmill {

/// What has to be made again.
enum class VerifyTarget : std::uint8_t {
  kIngestedChunk,  ///< rows of a chunk: ingest
  kCorpusChunk,    ///< tokens of a chunk: tokenize
  kBatches,        ///< some batches of a shard: extract computes their blocks
  kShard,          ///< a whole shard
  kVocab,          ///< the vocabulary folder: vocab_map
  kManifest,       ///< manifest.json: written anew by the next run
  kIngested,       ///< what ingest notes of all its rows: ingest
  kState,          ///< state.db contradicts itself: it is to be rebuilt from the files, nothing is marked by it
  kRunFile,        ///< run.json or pipeline.yaml: written anew by the next run
};
std::string_view VerifyTargetName(VerifyTarget target);

/// One file that is not as it should be.
struct VerifyFault {
  VerifyTarget target = VerifyTarget::kShard;
  std::string file{};     ///< relative to the work folder
  std::string message{};  ///< what is wrong with it
  std::int64_t chunk = -1;
  std::int64_t shard = -1;
  std::vector<std::int64_t> batches{};  ///< for kBatches: indices in the chunk's plan
  std::string no_repair{};              ///< why nothing can make it again; it is then named, not marked
  bool is_forbidden = false;            ///< this user may not read it: nothing is known of it, and it is not marked
};

struct VerifyReport {
  bool deep = false;
  std::int64_t files = 0;              ///< looked at
  std::int64_t bytes = 0;              ///< of those files
  std::int64_t unfinished_shards = 0;  ///< planned, damaged or stale in the database: work for the next run, no fault
  std::int64_t discarded_shards = 0;   ///< deleted on purpose after their publication: no fault, and not to be checked
  std::vector<VerifyFault> faults;
  std::vector<std::string> notes;  ///< files that no row speaks of: a run adopts or removes them

  bool ok() const { return faults.empty(); }
};

struct VerifyOptions {
  bool deep = false;
  std::int64_t first_deep_chunk = 0;  ///< chunks before it were read already: only their plain checks are made
  /// Told after each chunk that was read: the next one, and what was found so far.
  std::function<void(std::int64_t next_chunk, const VerifyReport& so_far)> on_chunk{};
  std::function<bool()> should_stop{};                                        ///< asked between files
  std::function<void(std::int64_t files, std::int64_t bytes)> on_progress{};  ///< told after each file
};

/// Bytes of the files that VerifyWork looks at, where all are as recorded: what its progress goes up to.
Result<std::int64_t> BytesToVerify(FileSystem& files, StateReader& state, const std::string& work_folder);

Result<VerifyReport> VerifyWork(FileSystem& files, StateReader& state, const std::string& work_folder,
                                const VerifyOptions& options);

/// Notes in faults of ingested rows that their sources are not there any more, or are others: only the sources could
/// make them again. Paths of sources are relative to `config_folder`.
Status CheckSourcesOfFaults(FileSystem& files, StateReader& state, const std::string& config_folder,
                            VerifyReport& report);

/// Turns the faults into work for the next run: the manifest is removed durably, then rows are marked. Files stay where
/// they are. Returns when it is durable. The caller holds the run lock.
Status MarkDamage(FileSystem& files, const std::string& work_folder, StateWriter& state, const VerifyReport& report);

/// What a person is told to do about the faults; empty where there are none. `is_marked`: MarkDamage was called.
std::string VerifyAdvice(const VerifyReport& report, const std::string& target, bool is_marked = false);

/// The report for `--json`.
json::Value VerifyReportJson(const VerifyReport& report);

}  // namespace draftmill
