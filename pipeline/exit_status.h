// Exit statuses of a run (design section 5, docs/commands.md) and which failure leads to which.
#pragma once

#include "base/status.h"

namespace draftmill {

inline constexpr int kRunComplete = 0;
inline constexpr int kRunFailed = 1;            ///< too many bad rows, no good sample, out of memory, a bug
inline constexpr int kRunNotStarted = 2;        ///< configuration, preflight, lock, changed fingerprint, unusable state.db
inline constexpr int kRunWithQuarantine = 3;    ///< complete, but some samples are in quarantine
inline constexpr int kRunAgain = 75;            ///< stopped on request, full disk, lost device: run again to continue

/// For a failure before anything was started.
inline int ExitStatusBeforeStart(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return kRunAgain;
  return status.ok() ? kRunComplete : kRunNotStarted;
}

/// For a failure after the start.
inline int ExitStatusAfterStart(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kRunComplete;
    case StatusCode::kCancelled:
    case StatusCode::kDiskFull:
    case StatusCode::kDevice: return kRunAgain;
    case StatusCode::kConflict: return kRunNotStarted;
    default: return kRunFailed;
  }
}

}  // namespace draftmill
