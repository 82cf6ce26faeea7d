// Watches the free space of the work folder's disk: the run pauses before the disk is full, not after.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Pauses a thread of its own while free space is below `limits.min_free_disk`. Thread-safe.
class DiskGuard {
 public:
  /// `wait_ms` is `limits.disk_wait`: how long to pause for space before giving up with kDiskFull.
  DiskGuard(FileSystem& file_system, Clock& clock, std::string folder, std::int64_t min_free_bytes,
            std::int64_t wait_ms)
      : file_system_(file_system),
        clock_(clock),
        folder_(std::move(folder)),
        min_free_bytes_(min_free_bytes),
        wait_ms_(wait_ms) {}

  /// Returns at once where `needed_bytes` can be written and min_free_disk is still left; otherwise says so through
  /// `say` and waits, asking once a second. kDiskFull after disk_wait, kCancelled where `should_stop` becomes true.
  Status WaitForSpace(std::int64_t needed_bytes, const std::function<bool()>& should_stop,
                      const std::function<void(const std::string&)>& say);

 private:
  FileSystem& file_system_;
  Clock& clock_;
  const std::string folder_;
  const std::int64_t min_free_bytes_;
  const std::int64_t wait_ms_;
};

}  // namespace draftmill
