// Ingest: from the sources of a configuration to the run's conversations in their global order, cut into chunks.
//
//   IngestOptions options = IngestOptionsFrom(values);
//   options.threads = 4;
//   Result<IngestSummary> summary = Ingest(options, RealFileSystem(), work_folder, sink, should_stop);
//
// It reads every source once, brings rows into canonical form, drops exact duplicates (the first in source order
// stays), shuffles, and leaves `work_folder`/ingested/: chunk-NNNNNN.jsonl.zst, rejected.jsonl.zst and, written last,
// index.json. Memory is bounded whatever the number and size of rows; the bytes depend on the sources and the options
// alone, never on threads or memory_bytes. Temporary files lie in ingested/spill/ and go at the end.
//
// Ingest always starts anew: what stands in ingested/ is removed first (after the sources were found and opened). So an
// interrupted ingest is simply run again.
//
// Errors: a bad row is refused, counted and reported to the sink; a source that is missing, empty, cut or not readable
// ends ingest with a message that names it, kConflict where a file is not what SourceFile::content says. kCancelled where `should_stop` said so, kDiskFull where the disk is full.
// Threads: call from one; the sink is called from that thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/source_files.h"
#include "stages/parameter.h"
#include "state/file_system.h"

namespace draftmill {

struct IngestOptions {
  std::vector<SourceSpec> sources;
  /// The files that `sources` stand for, epoch by epoch: all rows of an epoch come after those of the epochs before, in
  /// chunks of their own, so that files of a later epoch change no number and no byte of what is there. Empty: all that
  /// FindSourceFiles finds, as one epoch.
  std::vector<SourceFile> files;
  /// Source files are named relative to this folder in what is written, so that no byte depends on the current folder;
  /// empty: as they were found.
  std::string base_folder;
  bool deduplicate = true;
  std::optional<std::uint64_t> shuffle_seed;  ///< nothing: the order of the sources
  bool normalize = true;
  std::int64_t chunk_rows = 4096;
  std::int64_t chunk_bytes = std::int64_t{16} << 20;  ///< of canonical text; a chunk has at least one row
  std::int64_t max_row_bytes = std::int64_t{32} << 20;

  int threads = 1;                                     ///< parse and pack workers beside the calling thread, if above 1
  std::int64_t memory_bytes = std::int64_t{64} << 20;  ///< for sorting; buffers and workers take about as much again
};

/// The options that the section `ingest` of a pipeline file stands for; sources as FindSourceFiles expects them. Values
/// that the declarations of IngestSpec() cannot express are checked here: kInvalidConfig.
Result<IngestOptions> IngestOptionsFrom(const ParameterValues& values);

/// A conversation's row in the state database.
struct ConversationPlace {
  std::int64_t sample_id = 0;
  std::int32_t chunk = 0;
  RowPlace place;
  Hash128 content_hash;
};

enum class IngestPhase : std::uint8_t { kReading, kOrdering };

struct IngestProgress {
  IngestPhase phase = IngestPhase::kReading;
  std::int64_t bytes_read = 0;  ///< of all source files
  std::int64_t bytes_total = 0;
  std::int64_t rows_read = 0;
  std::int64_t rows_rejected = 0;
  std::int64_t rows_written = 0;  ///< to chunks; as many as are kept when all is done
};

/// Where ingest tells what it did, as it does it. A failure ends ingest with that failure.
class IngestSink {
 public:
  virtual ~IngestSink() = default;
  /// Some more of the disk is about to be used, megabytes at the most: may wait until there is space.
  virtual Status BeforeWriting() { return OkStatus(); }
  /// A chunk is written. Chunks come in ascending order, their conversations in ascending order of sample_id. It is
  /// durable, and so are all others, when Ingest returns its summary: what was noted before counts only then.
  virtual Status AddChunk(const IngestedChunkFacts& facts, std::vector<ConversationPlace> conversations) = 0;
  /// Rows were refused; in source order. Where neither order nor duplicates ask for a second pass, chunks come between.
  virtual Status AddFailures(std::vector<Failure> failures) = 0;
  virtual void ReportProgress(const IngestProgress& progress) = 0;
};

/// One source file: rows = kept + duplicates + rejected + not_taken.
struct SourceSummary {
  std::string path;
  std::int32_t epoch = 0;  ///< of IngestOptions::files
  std::string format;      ///< a name of RowForm; "mixed" where rows of several forms were recognized
  std::int64_t bytes = 0;  ///< size of the file
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;
  Hash128 content_hash;   ///< XXH3-128 of the file's own bytes
  std::int64_t rows = 0;  ///< read; those after a reached `take: N` are not
  std::int64_t kept = 0;
  std::int64_t duplicates = 0;
  std::int64_t rejected = 0;
  std::int64_t not_taken = 0;  ///< good rows outside the fraction that `take` asks for
};

struct IngestSummary {
  std::vector<SourceSummary> sources;  ///< in the order that RowPlace::source counts
  std::vector<IngestedChunkFacts> chunks;

  std::int64_t rows() const;  ///< read, of all sources
  std::int64_t kept() const;  ///< conversations of the run
  std::int64_t rejected() const;
};

Result<IngestSummary> Ingest(const IngestOptions& options, FileSystem& file_system, const std::string& work_folder,
                             IngestSink& sink, const std::function<bool()>& should_stop);

/// What ingested/index.json says: facts of the data alone. It stands where ingest has ended, and only there.
Result<IngestSummary> ReadIngestSummary(FileSystem& file_system, const std::string& work_folder);

}  // namespace draftmill
