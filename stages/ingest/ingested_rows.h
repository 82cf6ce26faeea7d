// The ingested corpus on disk: ingested/chunk-000012.jsonl.zst, one conversation a line, in the run's global order
// (docs/formats.md). `inspect`, `--repair` and `state rebuild` read from here: the sources may be gone.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(IngestedChunk rows, ReadIngestedChunk(file_system, work_folder, chunk, digest));
//
// A line is {"sample_id", "content_hash", "source", "row", "line", "byte_offset", "conversation"}; a file is one zstd
// frame of level 3 with its size and checksum, so its bytes depend on the rows alone. Safe from any thread for
// different chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"
#include "formats/records.h"
#include "state/file_system.h"

namespace draftmill {

/// What is known of a chunk's file.
struct IngestedChunkFacts {
  std::int32_t chunk = 0;
  std::int64_t first_sample = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  ///< of the file
  Hash128 digest;          ///< XXH3-128 of the file
  std::int32_t epoch = 0;  ///< that all its rows belong to (IngestOptions::files)

  friend bool operator==(const IngestedChunkFacts&, const IngestedChunkFacts&) = default;
};

/// `work_folder`/ingested
std::string IngestedFolder(std::string_view work_folder);
/// `work_folder`/ingested/chunk-000012.jsonl.zst
std::string IngestedChunkPath(std::string_view work_folder, std::int32_t chunk);

/// The lines of a chunk that is being made.
class IngestedChunkText {
 public:
  IngestedChunkText(std::int32_t chunk, std::int64_t first_sample, std::int32_t epoch)
      : chunk_(chunk), epoch_(epoch), first_sample_(first_sample) {}

  /// Appends the next row; its sample id follows from those before. `conversation` is compact JSON.
  void Add(const Hash128& content_hash, const RowPlace& place, std::string_view conversation);

  std::int32_t chunk() const { return chunk_; }
  std::int32_t epoch() const { return epoch_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(text_.size()); }
  /// What the file of these lines would take.
  Result<std::int64_t> PackedBytes() const;

  /// Packs the lines and writes the file. Durable only after SyncIngestedChunks: nothing reads a chunk before the index
  /// of the whole ingest stands, and one wait for the disk at the end is far cheaper than one a chunk.
  Result<IngestedChunkFacts> WriteFile(FileSystem& file_system, const std::string& work_folder) const;

 private:
  std::int32_t chunk_;
  std::int32_t epoch_;
  std::int64_t first_sample_;
  std::int64_t rows_ = 0;
  std::string text_;
};

/// Makes the files of the chunks 0 .. `chunks`-1 durable, and their folder.
Status SyncIngestedChunks(FileSystem& file_system, const std::string& work_folder, std::int32_t chunks);

/// Reads a chunk back. Fails with kCorrupt, naming the file, where its bytes do not have the `digest` that is given, do
/// not unpack, or do not hold consecutive sample ids; with kNotFound where there is no such file.
Result<IngestedChunk> ReadIngestedChunk(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk,
                                        const std::optional<Hash128>& digest = std::nullopt);

}  // namespace draftmill
