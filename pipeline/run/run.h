// One run of the pipeline, and the forecast of one.
//
//   auto progress = MakeProgress(STDERR_FILENO, RealClock());
//   const RunReport report = RunPipeline(config, {.program_version = "0.1.0"}, *progress);
//   return report.exit_status;
//
// Blocks until the run has ended. One run at a time in a process: it installs handlers for signals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "pipeline/config/config.h"
#include "pipeline/progress/progress.h"
#include "stages/extract/extractor.h"
#include "state/file_system.h"

namespace draftmill {

/// What a run is asked for, beside its configuration.
struct RunRequest {
  std::string program_version = {};
  bool accept_changes = false;                  ///< redo what a changed fingerprint makes stale instead of refusing (2)
  std::optional<std::string> rerun_stage = {};  ///< recompute this stage even where it is up to date
  /// Go no further than this stage; the run then ends without a manifest.
  std::optional<std::string> until_stage = {};
  /// A folder on a local disk for state.db, where the work folder's own does not do (state/state_place.h).
  std::optional<std::string> state_folder = {};
  /// Told when the run has begun, so that whoever waits for that need not any longer.
  std::function<void()> on_started = {};
  bool json = false;  ///< the report goes to a program: `summary` is not shown
};

/// What a run works with outside of itself. Tests stand others in their place.
struct RunEnvironment {
  FileSystem* files = &RealFileSystem();
  Clock* clock = &RealClock();
  /// Makes the engine; empty: the one that is built in, where one is.
  std::function<Result<std::unique_ptr<Extractor>>(const ExtractOptions&)> make_extractor = {};
};

/// How a run ended.
struct RunReport {
  int exit_status = 0;  ///< 0, 1, 2, 3 or 75 (docs/commands.md)
  std::string summary;  ///< the final report for people, or why it ended and what to do next
  json::Value facts;    ///< the final report for programs
};

/// Runs everything that is not up to date.
RunReport RunPipeline(const Config& config, const RunRequest& request, ProgressSink& progress,
                      const RunEnvironment& environment = {});

/// What RunPipeline would do: what would run and why, with counts, tokens, bytes and disk. Changes nothing.
Result<json::Value> PlanRun(const Config& config);

}  // namespace draftmill
