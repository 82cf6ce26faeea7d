// What a running pipeline tells about itself: counters of its stages, shown through a ProgressSink and kept as points of
// throughput in the state database.
//
// Counters start from the database's totals, so what an earlier run did counts as done but not into the rates.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "pipeline/progress/progress.h"
#include "state/file_system.h"
#include "state/store.h"

namespace draftmill {

class RunMonitor {
 public:
  RunMonitor(ProgressSink& sink, StateWriter& state, Clock& clock) : sink_(sink), state_(state), clock_(clock) {}

  /// Sets where a stage stands when the run begins, and shows it.
  void Begin(const StageProgress& progress);
  /// Adds to a stage's counters. `samples` counts in the stage's unit.
  void Add(const std::string& stage, std::int64_t samples, std::int64_t tokens, std::int64_t bytes);
  /// Replaces a stage's counters, for one whose progress is told in totals since the run began; `rows` counts towards
  /// the rate.
  void Set(const std::string& stage, std::int64_t done, std::int64_t total, std::int64_t rows, std::int64_t bytes);
  /// Sets how full the buffer before a stage is (StageProgress::buffer_fill), and shows it.
  void SetBufferFill(const std::string& stage, double fill);
  void SetActivity(const std::string& stage, StageActivity activity);
  /// Shows a line and keeps it as an event.
  void Say(EventLevel level, const std::string& text);
  /// Writes the last points of throughput.
  void Finish();

 private:
  struct Meter {
    StageProgress progress;
    std::int64_t span_start_ns = 0;  ///< 0: nothing was done yet in this run
    std::int64_t samples = 0;        ///< since span_start_ns
    std::int64_t tokens = 0;
    std::int64_t bytes = 0;
    std::int64_t rows_set = 0;  ///< by the last Set
    std::int64_t bytes_set = 0;
  };

  void Keep(Meter& meter, std::int64_t now_ns);

  ProgressSink& sink_;
  StateWriter& state_;
  Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Meter> meters_;
};

}  // namespace draftmill
