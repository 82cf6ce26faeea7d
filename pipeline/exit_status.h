// Exit statuses of every command (docs/commands.md, "Exit status") and which failure leads to which.
#pragma once

#include "base/status.h"
#include "state/consistency.h"

namespace draftmill {

inline constexpr int kExitComplete = 0;
inline constexpr int kExitFailed = 1;       ///< too many bad rows, no good sample, out of memory, a bug
inline constexpr int kExitNotStarted = 2;   ///< configuration, preflight, lock, changed fingerprint, unusable state.db
inline constexpr int kExitQuarantined = 3;  ///< complete, but some rows or samples are in quarantine
inline constexpr int kExitRunAgain = 75;    ///< stopped on request, full disk, lost device: run again to continue

/// For a failure before anything was started.
inline int ExitStatusBeforeStart(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return kExitRunAgain;
  return status.ok() ? kExitComplete : kExitNotStarted;
}

/// For a failure after the start.
inline int ExitStatusAfterStart(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kExitComplete;
    case StatusCode::kCancelled:
    case StatusCode::kDiskFull:
    case StatusCode::kDevice: return kExitRunAgain;
    case StatusCode::kConflict: return kExitNotStarted;
    default: return kExitFailed;
  }
}

/// For a failure of a command that is no run: a wrong request, or a state.db that cannot be used, has started nothing.
inline int ExitStatusOf(const Status& status) {
  const bool is_refusal = status.code() == StatusCode::kInvalidConfig || SaysThatStateIsDamaged(status);
  return is_refusal ? kExitNotStarted : ExitStatusAfterStart(status);
}

/// For a failure of a command that only looks: what it was asked for is not there, or is none that this program knows. A
/// damaged file is a failure all the same.
inline int ExitStatusOfLook(const Status& status) {
  const bool is_refusal = status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnsupported;
  return is_refusal ? kExitNotStarted : ExitStatusOf(status);
}

}  // namespace draftmill
