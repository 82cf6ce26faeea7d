// How much a run will make, before it is made: from the database where a part is done, from a sample of the sources'
// rows where nothing is. An estimate for `plan` and for the check of the disk, never a promise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/flow/disk_guard.h"
#include "pipeline/run/run_inputs.h"
#include "state/file_system.h"
#include "state/state_records.h"

namespace draftmill {

/// A source file of which nothing can be used, as far as was looked.
struct BarrenSource {
  std::string path;
  std::int64_t rows = 0;  ///< looked at
  std::string why;        ///< of the first row
};

struct Forecast {
  bool is_exact = false;  ///< everything is tokenized already
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t ingested_bytes_left = 0;  ///< of rows that ingest has to pack
  std::int64_t corpus_bytes_left = 0;    ///< of ids and masks that are not there yet
  std::int64_t states_bytes = 0;         ///< of all hidden states
  std::int64_t states_bytes_left = 0;    ///< of those that are to be computed
  std::int64_t disk_bytes = 0;           ///< what the disk takes of these at once: fewer where shards are discarded
  std::vector<BarrenSource> barren;      ///< only where the sources were sampled
};

/// The folder on whose disk the states come to lie: shards/, which may be a link to another disk, else the work folder, else
/// the nearest of its parents that is there.
std::string FolderOfStates(FileSystem& files, const std::string& work_folder);

/// All folders on whose disks a run writes: that of the states, the work folder, corpus/ and the folder of state.db, of which
/// each may be a link to another disk. The work folder must exist.
WrittenFolders FoldersWrittenTo(FileSystem& files, const std::string& work_folder);

/// What the forecast asks of one disk.
struct DiskDemand {
  std::string folder;             ///< on it
  std::int64_t needed_bytes = 0;  ///< that are still to be written there
  std::int64_t free_bytes = 0;
};

/// What a run that reaches the states, or not, asks of the disk of the states and of that of the work folder: one demand where
/// they are the same, else the states' first. While ingest works its rows lie there twice.
Result<std::vector<DiskDemand>> DemandsOnDisks(const Forecast& forecast, bool has_states, FileSystem& files,
                                               const std::string& work_folder);

/// The first demand that does not leave `min_free_disk_bytes` free; nothing where all do.
std::optional<DiskDemand> FirstUnmet(const std::vector<DiskDemand>& demands, std::int64_t min_free_disk_bytes);

/// How much of so many bytes of states lies on the disk at once: all of them, or where shards are discarded the one that
/// is written.
std::int64_t BytesAtOnce(std::int64_t states_bytes, const PlanParameters& plan, bool discards_shards);

/// From chunks that exist: what is tokenized is exact, the rest is taken to be like it. `discarded_tokens` are those of
/// discarded shards: computed again where shards are no longer discarded.
Forecast ForecastFromChunks(const std::vector<ChunkRecord>& chunks, const RunInputs& inputs,
                            std::int64_t discarded_tokens);

/// From the first rows of each source file, tokenized in memory.
Result<Forecast> ForecastFromSources(const RunInputs& inputs, FileSystem& files);

}  // namespace draftmill
