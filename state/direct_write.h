// Large writes past the page cache, several pieces at once: what a fast disk needs to be busy, without the copy into
// the cache, without pushing out what others keep there, and without a sync that then writes everything.
//
//   DirectWriter direct(descriptor);                                   // of a file that is open for writing
//   DRAFTMILL_ASSIGN_OR_RETURN(bool done, direct.Write(offset, bytes));   // false: nothing was written, write it
//   another way
//
// Offsets and sizes are multiples of kDirectBlock; memory may lie anywhere (what is not aligned is copied in pieces).
// The bytes are on the disk's own cache when Write returns, so a sync is still needed. Ranges that nobody else writes
// at the same time may be written at once by several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/status.h"

namespace draftmill {

/// What direct writes begin and end at: no file system asks for more.
inline constexpr std::int64_t kDirectBlock = 4096;
/// Writes below this go through the page cache: starting threads would cost more than it saves.
inline constexpr std::int64_t kLeastDirectBytes = std::int64_t{16} << 20;
/// Pieces that are under way at once.
inline constexpr int kDirectWriters = 4;

class DirectWriter {
 public:
  /// `descriptor` must stay open and be open for writing; the same file is opened once more, at the first write.
  explicit DirectWriter(int descriptor) : descriptor_(descriptor) {}
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  /// Writes all bytes; false where this file cannot be written so. After a failure any of the bytes may be written.
  Result<bool> Write(std::int64_t offset, std::span<const std::byte> bytes);

 private:
  /// The descriptor for direct I/O, or -1.
  int Open();

  const int descriptor_;
  std::once_flag opened_;
  int direct_ = -1;
  std::atomic<bool> refused_{false};
};

}  // namespace draftmill
