// Keeps a second run away from a work folder.
//
//   Result<RunLock> lock = RunLock::Acquire(work_folder, RealClock());   // kConflict names the run that holds it
//
// A lock of the kernel (flock) on the work folder and on `<work folder>/run.lock`: it goes with the process, however that
// ends, so there is never a stale one. The file stays; its text says who holds the lock and is for messages only. Somebody
// may remove it, taking it for a stale one: the folder is still locked. This is the one file that does not go through
// FileSystem, because no test could fake what the kernel promises. A child that a fork() left
// without exec() shares the lock; after exec() it does not.
//
// Threads: one object, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Who holds a lock, as its file says.
struct LockOwner {
  std::string host{};
  std::string boot_id{};  ///< tells processes of the same number apart across restarts of the machine
  std::int64_t pid = 0;
  std::int64_t since_ms = 0;  ///< milliseconds since 1970 UTC

  /// "process 4711 on gpu-03, since 2026-01-31 12:00:00 UTC".
  std::string ToString() const;
};

/// Of this start of the machine: another one after the next. Empty where it cannot be found out.
std::string BootId();

/// This process on this host. Parts that cannot be found out are empty.
LockOwner ThisProcess(Clock& clock);

class RunLock {
 public:
  /// Takes the lock, or fails with kConflict and a message that names its owner and what to do.
  static Result<RunLock> Acquire(const std::string& work_folder, Clock& clock);
  /// For those who only read: takes the lock where this process may, so that no run begins meanwhile. In a folder that it
  /// may not write to (a backup, another user's) it only looks, and there is no lock; a run may begin.
  static Result<std::optional<RunLock>> AcquireForReading(const std::string& work_folder, Clock& clock);
  /// Who holds the lock now; nothing where nobody does.
  static Result<std::optional<LockOwner>> Peek(const std::string& work_folder);

  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  /// Releases the lock.
  ~RunLock();

 private:
  RunLock(int folder, int file) : folder_(folder), file_(file) {}
  int folder_;  ///< -1 where the file system locks no folders
  int file_;
};

}  // namespace draftmill
