// A file of the work folder as the state database and the manifest describe it, and the digest of any file.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// A file that was published: written whole, synced, renamed to its name, its folder synced.
struct PublishedFile {
  std::string path;  ///< relative to the work folder, with '/'
  std::int64_t bytes = 0;
  Hash128 digest;  ///< XXH3-128 of all bytes; of a shard, of the digests of its parts (formats/shard.h)

  friend bool operator==(const PublishedFile&, const PublishedFile&) = default;
};

/// Size and XXH3-128 of a file's bytes, read in pieces of a few MiB.
Result<PublishedFile> DigestFile(FileSystem& file_system, const std::string& work_folder, const std::string& path);

/// The name under which a file is written before it is published.
std::string PartialPath(const std::string& path);

/// kInvalidInput as kCorrupt: what is wrong in a file of draftmill's own is damage, not bad input.
Status AsCorrupt(const Status& status);

}  // namespace draftmill
