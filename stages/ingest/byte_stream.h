// The unpacked bytes of a source file, one piece after the other: plain, gzip (also several members) or zstd (also
// several frames), told by the file's first bytes.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(file_system, path));
//   while (true) { DRAFTMILL_ASSIGN_OR_RETURN(std::size_t bytes, stream->Read(buffer)); if (bytes == 0) break; ... }
//
// Memory is bounded whatever the file says (a zstd window of at most 128 MiB). Every failure names the file and where
// in it. One thread at a time. Formats: RFC 1952 (gzip), RFC 8878 (zstd, skippable frames included).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

class ByteStream {
 public:
  /// Opens a file and looks at its first bytes. Refuses UTF-16, UTF-32 and Parquet by name, an empty file, and a name
  /// in .gz or .zst whose content is something else.
  static Result<std::unique_ptr<ByteStream>> Open(FileSystem& file_system, const std::string& path);
  virtual ~ByteStream() = default;

  /// Fills up to buffer.size() bytes of the unpacked file; 0 at its end only.
  virtual Result<std::size_t> Read(std::span<std::byte> buffer) = 0;

  /// Bytes of the file itself that were read so far.
  virtual std::int64_t packed_bytes() const = 0;

  /// Reads what is left of the file without unpacking it, and returns XXH3-128 of the file's own bytes.
  virtual Result<Hash128> HashWholeFile() = 0;
};

}  // namespace draftmill
