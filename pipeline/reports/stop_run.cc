#include "pipeline/reports/stop_run.h"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "state/run_lock.h"

namespace draftmill {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

}  // namespace

Status StopRun(const std::string& work_folder, Clock& clock, std::int64_t wait_ms) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> owner, RunLock::Peek(work_folder));
  if (!owner) return OkStatus();
  const LockOwner self = ThisProcess(clock);
  // 0 and below mean whole groups of processes.
  if (owner->pid <= 1) {
    return Conflict("the run is " + owner->ToString() + ": it cannot be found from here. Send SIGTERM to it yourself");
  }
  // A process number means something on its own machine only.
  if (owner->host != self.host || owner->boot_id != self.boot_id) {
    return Conflict("the run is " + owner->ToString() + ", not on this machine (" + self.host + "): stop it there");
  }
  if (::kill(static_cast<pid_t>(owner->pid), SIGTERM) != 0 && errno != ESRCH) {
    return ErrnoStatus(errno, "stopping " + owner->ToString());
  }
  const std::int64_t deadline_ns = clock.MonotonicNs() + wait_ms * 1'000'000;
  while (clock.MonotonicNs() < deadline_ns) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> still, RunLock::Peek(work_folder));
    if (!still || still->pid != owner->pid) return OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
  return Conflict(owner->ToString() + " was asked to stop and has not ended yet; it finishes what is in flight. " +
                  "Ask again to end it at once: nothing that is published can be harmed");
}

}  // namespace draftmill
