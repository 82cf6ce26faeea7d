// Watches the free space of the disks that a run writes to: it pauses before one of them is full, not after.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Folders on whose disks a run writes; several may lie on one.
struct WrittenFolders {
  std::string states;               ///< where hidden states come to lie
  std::vector<std::string> others;  ///< where everything else does
};

/// Pauses a thread of its own while free space is below `limits.min_free_disk`. Thread-safe.
class DiskGuard {
 public:
  /// `wait_ms` is `limits.disk_wait`: how long to pause for space before giving up with kDiskFull.
  DiskGuard(FileSystem& file_system, Clock& clock, WrittenFolders folders, std::int64_t min_free_bytes,
            std::int64_t wait_ms)
      : file_system_(file_system),
        clock_(clock),
        folders_(std::move(folders)),
        min_free_bytes_(min_free_bytes),
        wait_ms_(wait_ms) {}

  /// Returns at once where `states_bytes` of hidden states can be written and min_free_disk is still left on every disk;
  /// otherwise says so through `say` and waits, asking once a second. kDiskFull after disk_wait, kCancelled where
  /// `should_stop` becomes true. Of threads that meet the same full disk one tells.
  Status WaitForSpace(std::int64_t states_bytes, const std::function<bool()>& should_stop,
                      const std::function<void(const std::string&)>& say);

 private:
  /// What is missing on the disk of a folder.
  struct Shortage {
    std::string folder;
    std::int64_t free_bytes = 0;
    std::int64_t missing_bytes = 0;  ///< 0: nothing
  };
  Result<Shortage> FindShortage(std::int64_t states_bytes) const;
  Result<Shortage> ShortageOn(const std::string& folder, std::int64_t needed_bytes) const;

  std::mutex mutex_;  ///< held while waiting
  FileSystem& file_system_;
  Clock& clock_;
  const WrittenFolders folders_;
  const std::int64_t min_free_bytes_;
  const std::int64_t wait_ms_;
};

}  // namespace draftmill
