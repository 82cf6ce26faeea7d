// What a work folder's state database says about its run: for `draftmill status`.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const RunStatus status, ReadRunStatus(RealFileSystem(), work_folder, RealClock()));
//   StatusAsText(status)   // for people; status.facts for programs
//
// Read-only; works while a run writes. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct RunStatus {
  /// As the last run ended; 75 while it goes on and where it was killed.
  int exit_status = 0;
  bool is_running = false;
  /// The mask report for people (pipeline/reports/mask_report.h).
  std::vector<std::string> mask_lines;
  /// {"work", "run", "stages", "mask", "shards", "quarantine", "events"} (docs/commands.md, "status").
  json::Value facts;
};

/// kInvalidConfig where no run was ever started there.
Result<RunStatus> ReadRunStatus(FileSystem& files, const std::string& work_folder, Clock& clock);

/// The status for people, at most some thirty lines.
std::string StatusAsText(const RunStatus& status);

/// "2026-01-31 12:00:00 UTC"
std::string UtcTime(std::int64_t unix_ms);

}  // namespace draftmill
