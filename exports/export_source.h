// A finished work folder as an export reads it: what holds for all of it, and the samples of each chunk.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const ExportSource source, ExportSource::Open(file_system, work_folder));
//   for (const SourceChunk& chunk : source.chunks()) {
//     DRAFTMILL_ASSIGN_OR_RETURN(std::vector<ExportRow> rows, source.RowsOf(chunk.chunk, selection));
//
// Only a finished run is taken: one whose manifest stands. Reading holds no lock; that nothing changes meanwhile is seen
// from the checksums of the samples and from the manifest, which the exporter compares at the end. Memory: the
// vocabulary's arrays, and one chunk's side tensors at a time.
//
// Errors: kInvalidConfig where there is no finished run or no such source, kCorrupt names the damaged file, kIo. Threads:
// one at a time; accessors after Open from any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exports/selection.h"
#include "formats/final_norm.h"
#include "formats/manifest.h"
#include "formats/records.h"
#include "stages/vocab_map/vocab_map.h"
#include "state/file_system.h"

namespace draftmill {

/// One sample of an export and where it comes from.
struct ExportRow {
  std::int64_t row = 0;    ///< dense over the export, train before eval
  std::int64_t index = 0;  ///< dense within its side
  Split split = Split::kTrain;
  SampleKey key;
  std::int64_t chunk = 0;
  std::int64_t shard = 0;
  std::int64_t place = 0;  ///< in the shard
  std::int64_t tokens = 0;
  std::int64_t source = 0;
};

struct SourceChunk {
  std::int64_t chunk = 0;
  std::int64_t shards = 0;
};

class ExportSource {
 public:
  static Result<ExportSource> Open(FileSystem& file_system, const std::string& work_folder);

  const std::string& work_folder() const { return work_folder_; }
  /// XXH3-128 of manifest.json, which lists the digest of every file.
  const std::string& manifest_digest() const { return manifest_digest_; }
  const std::vector<std::int32_t>& layers() const { return layers_; }
  std::int32_t num_layers() const { return num_layers_; }
  std::int64_t hidden_size() const { return hidden_size_; }
  std::int64_t vocab_rows() const { return vocab_rows_; }
  const std::string& extract_fingerprint() const { return extract_fingerprint_; }
  const VocabMap& vocab() const { return vocab_; }
  /// Nothing where the run kept none, as runs of an earlier draftmill.
  const std::optional<FinalNorm>& final_norm() const { return final_norm_; }
  const std::vector<SourceChunk>& chunks() const { return chunks_; }
  /// The name of a source file, as the run knows it.
  const std::string& SourceName(std::int64_t source) const;

  /// kInvalidConfig where the selection names a source that is none.
  Status CheckSelection(const Selection& selection) const;
  /// The good samples of a chunk that the selection takes, ascending by key; `row` and `index` are not yet given.
  Result<std::vector<ExportRow>> RowsOf(std::int64_t chunk, const Selection& selection) const;
  /// kConflict where the manifest is no longer the one that was opened.
  Status CheckUnchanged() const;

 private:
  ExportSource(FileSystem& file_system, std::string work_folder)
      : file_system_(&file_system), work_folder_(std::move(work_folder)) {}
  Status ReadFacts(const Manifest& manifest);
  Status ReadState();
  bool TakesSource(const Selection& selection, std::int64_t source) const;

  FileSystem* file_system_;
  std::string work_folder_;
  std::string manifest_digest_;
  std::vector<std::int32_t> layers_;
  std::int32_t num_layers_ = 0;
  std::int64_t hidden_size_ = 0;
  std::int64_t vocab_rows_ = 0;
  std::string model_fingerprint_;
  std::string extract_fingerprint_;
  VocabMap vocab_;
  std::optional<FinalNorm> final_norm_;
  std::vector<SourceChunk> chunks_;
  std::map<std::int64_t, std::string> source_names_;
};

}  // namespace draftmill
