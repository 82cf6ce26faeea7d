#include "pipeline/flow/disk_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "pipeline/progress/format_units.h"

namespace draftmill {

Result<DiskGuard::Shortage> DiskGuard::ShortageOn(const std::string& folder, std::int64_t needed_bytes) const {
  DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, file_system_.Space(folder));
  const std::int64_t missing = min_free_bytes_ + needed_bytes - space.free_bytes;
  return Shortage{folder, space.free_bytes, std::max<std::int64_t>(0, missing)};
}

Result<DiskGuard::Shortage> DiskGuard::FindShortage(std::int64_t states_bytes) const {
  DRAFTMILL_ASSIGN_OR_RETURN(Shortage shortage, ShortageOn(folders_.states, states_bytes));
  for (std::size_t i = 0; i < folders_.others.size() && shortage.missing_bytes == 0; ++i) {
    DRAFTMILL_ASSIGN_OR_RETURN(shortage, ShortageOn(folders_.others[i], 0));
  }
  return shortage;
}

Status DiskGuard::WaitForSpace(std::int64_t states_bytes, const std::function<bool()>& should_stop,
                               const std::function<void(const std::string&)>& say) {
  const std::int64_t start_ns = clock_.MonotonicNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string said;  // of which folder
  while (true) {
    DRAFTMILL_ASSIGN_OR_RETURN(const Shortage shortage, FindShortage(states_bytes));
    if (shortage.missing_bytes == 0) {
      if (!said.empty()) say("space is back on the disk of " + said + ": the run goes on");
      return OkStatus();
    }
    const std::int64_t waited_ms = (clock_.MonotonicNs() - start_ns) / 1'000'000;
    if (waited_ms >= wait_ms_) {
      return DiskFull(
          fmt::format("{} are free on the disk of {}, and limits.min_free_disk keeps {}. Nothing published was lost. "
                      "Free {} there, "
                      "or lower limits.min_free_disk, then run the same command again",
                      FormatBytes(shortage.free_bytes), shortage.folder, FormatBytes(min_free_bytes_),
                      FormatBytes(shortage.missing_bytes)));
    }
    if (should_stop()) return Cancelled("stopped while waiting for disk space");
    if (said != shortage.folder) {
      say(fmt::format("paused: free {} on the disk of {} (limits.disk_wait gives up after {} s)",
                      FormatBytes(shortage.missing_bytes), shortage.folder, wait_ms_ / 1000));
      said = shortage.folder;
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace draftmill
