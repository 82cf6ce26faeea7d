#include "pipeline/flow/disk_guard.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "pipeline/progress/format_units.h"

namespace draftmill {

Status DiskGuard::WaitForSpace(std::int64_t needed_bytes, const std::function<bool()>& should_stop,
                               const std::function<void(const std::string&)>& say) {
  const std::int64_t start_ns = clock_.MonotonicNs();
  bool said = false;
  while (true) {
    DRAFTMILL_ASSIGN_OR_RETURN(const DiskSpace space, file_system_.Space(folder_));
    if (space.free_bytes - needed_bytes >= min_free_bytes_) {
      if (said) say("space is back on the disk of " + folder_ + ": the run goes on");
      return OkStatus();
    }
    const std::string missing = FormatBytes(min_free_bytes_ + needed_bytes - space.free_bytes);
    const std::int64_t waited_ms = (clock_.MonotonicNs() - start_ns) / 1'000'000;
    if (waited_ms >= wait_ms_) {
      return DiskFull(
          fmt::format("{} are free on the disk of {}, and limits.min_free_disk keeps {}. Nothing published was lost. "
                      "Free {} there, "
                      "or lower limits.min_free_disk, then run the same command again",
                      FormatBytes(space.free_bytes), folder_, FormatBytes(min_free_bytes_), missing));
    }
    if (should_stop()) return Cancelled("stopped while waiting for disk space");
    if (!said) {
      say(fmt::format("paused: free {} on the disk of {} (limits.disk_wait gives up after {} s)", missing, folder_,
                      wait_ms_ / 1000));
      said = true;
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace draftmill
