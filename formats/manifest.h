// manifest.json: what a finished run consists of. Facts of the data alone, no times, rates, hosts or absolute paths, so
// that two runs of the same input and configuration have the same manifest, byte for byte (docs/formats.md,
// "Manifest").
//
//   DRAFTMILL_RETURN_IF_ERROR(RemoveManifest(file_system, work_folder));   // before anything that it lists is replaced
//   ...
//   DRAFTMILL_RETURN_IF_ERROR(WriteManifest(file_system, work_folder, manifest));   // last of all
//
// A manifest that exists is therefore true: everything it lists was published before it. Functions are safe from any
// thread. Errors: kNotFound, kCorrupt, kUnsupported (a later format), kIo, kDiskFull.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "formats/published_file.h"
#include "state/file_system.h"

namespace draftmill {

/// A corpus chunk or a shard, with what it holds.
struct ManifestEntry {
  PublishedFile file;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t quarantined = 0;  ///< samples that are in the file but not good; always 0 for a corpus chunk

  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

struct Manifest {
  /// What holds for the whole run: model, layers, fingerprints, mask rule. An object of the pipeline's choosing.
  json::Value facts = json::Object{};
  std::vector<ManifestEntry> corpus;  ///< in the order of the chunks
  std::vector<PublishedFile> vocab;   ///< in the order of their names
  std::vector<ManifestEntry> shards;  ///< in the order of chunk and shard
  /// Shards that were published and then deleted on purpose (`write.discard_after_publish`), as they had been. With any of
  /// them the folder is no data set: whoever reads states refuses it (DiscardedShardsNote).
  std::vector<ManifestEntry> discarded_shards;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// What every command says of a work folder with so many discarded shards.
std::string DiscardedShardsNote(std::int64_t shards);

/// "manifest.json"
std::string ManifestPath(const std::string& work_folder);

/// The text of the file: canonical JSON and a newline.
std::string ManifestText(const Manifest& manifest);
/// Reads back what ManifestText wrote; `path` is for messages.
Result<Manifest> ParseManifest(std::string_view text, const std::string& path);

/// Publishes the manifest atomically.
Status WriteManifest(FileSystem& file_system, const std::string& work_folder, const Manifest& manifest);
Result<Manifest> ReadManifest(FileSystem& file_system, const std::string& work_folder);
/// Removes the manifest durably; success where there is none.
Status RemoveManifest(FileSystem& file_system, const std::string& work_folder);

}  // namespace draftmill
