// How a run tells people where it stands: stages report to a ProgressSink, which shows a live view on a terminal and
// plain lines elsewhere. Everything goes to one file descriptor (standard error), so that standard output stays free
// for data.
//
//   std::unique_ptr<ProgressSink> progress = MakeProgress(STDERR_FILENO, RealClock());
//   progress->Update({.stage = "tokenize", .unit = "samples", .done = 1024, .total = 3072, .tokens = 310000});
//   progress->Line("resuming: 412 of 1,000 shards are published");
//
// All functions may be called from any thread at any rate: an update is one short critical section, drawing has a
// thread of its own and happens at most ten times a second. Rates are taken over the last 15 seconds, from the first
// update of a stage on, so that what an earlier run did does not count. The destructor shows the last state and leaves
// it on the screen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "state/file_system.h"

namespace draftmill {

/// How a stage stands.
enum class StageActivity : std::uint8_t { kWaiting, kRunning, kPaused, kDone };

/// Where a stage stands now. Counters are totals of the stage, also of earlier runs; they come from the database's
/// totals.
struct StageProgress {
  std::string stage = {};
  StageActivity activity = StageActivity::kRunning;
  std::string unit = "samples";  ///< what done and total count: "rows", "samples", "batches"
  std::int64_t done = 0;
  std::int64_t total = -1;  ///< -1: not known yet
  std::int64_t tokens = 0;  ///< 0 where the stage knows none
  std::int64_t bytes = 0;   ///< written so far; 0 where that says nothing
  double buffer_fill = -1;  ///< share of the stage's input buffer in use, 0 to 1; below 0: it has none
};

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  /// Replaces what was known about the stage. Stages are shown in the order of their first update.
  virtual void Update(const StageProgress& progress) = 0;
  /// Shows a line of text that stays, without its line break.
  virtual void Line(std::string_view text) = 0;
};

/// A live view where `fd` is a terminal that can redraw, else plain lines. Writes to `fd` fail silently: progress is no
/// data.
std::unique_ptr<ProgressSink> MakeProgress(int fd, Clock& clock);

/// Shows nothing.
std::unique_ptr<ProgressSink> MakeSilentProgress();

}  // namespace draftmill
