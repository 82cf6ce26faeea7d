// What the views of pipeline/progress/progress.h show: the latest state of each stage with rates, and the text of both views as
// pure functions.
//
// A board is for one thread at a time; the sink holds its lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/progress/progress.h"

namespace draftmill {

/// A stage as it is shown.
struct StageView {
  StageProgress progress = {};
  double done_per_second = 0;
  double tokens_per_second = 0;
  std::optional<double> eta_seconds = {};  ///< nothing where the total or the rate is not known
  double running_seconds = 0;              ///< since its first update, to its end where it has ended
};

class ProgressBoard {
 public:
  /// Takes an update at a time of Clock::MonotonicNs. Returns whether the stage is new or its activity changed.
  bool Update(const StageProgress& progress, std::int64_t now_ns);
  std::vector<StageView> View(std::int64_t now_ns) const;

 private:
  struct Point {
    std::int64_t at_ns = 0;
    std::int64_t done = 0;
    std::int64_t tokens = 0;
  };
  struct Stage {
    StageProgress progress;
    std::int64_t first_ns = 0;
    std::int64_t ended_ns = 0;  // 0 while it goes on
    Point first;
    std::deque<Point> recent;  // bounded: half a second apart, 15 seconds back
  };
  std::vector<Stage> stages_;
};

/// One row per stage, none longer than `columns` characters; what matters least is left out first.
std::vector<std::string> RenderLiveRows(const std::vector<StageView>& stages, int columns);

/// "tokenize: 1,024 of 3,072 samples (33.3 %), 1.25 k samples/s, 310 k tokens/s, 2 m 05 s left".
std::string RenderLine(const StageView& stage);

}  // namespace draftmill
