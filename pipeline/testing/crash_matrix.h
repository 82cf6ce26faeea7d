// The crash matrix: a run is ended at each point where it changes the disk, continued, and must then have made the same
// bytes and the same rows as a run that was left alone. For tests only.
//
//   CrashMatrix matrix(example);                       // runs it once undisturbed and takes down its points
//   for (const CrashPoint& point : matrix.points()) EXPECT_EQ(matrix.Try(point, Ending::kPowerCut), "");
//
// Points are found by running: every operation of the FileSystem seam that changes something, SQLite's included
// (state/sqlite_over_file_system.h). Nothing lists them by hand, so a new one is covered by itself. Every run is a process
// of its own, forked from the caller's, which must have one thread. An ending leaves what a kernel (kill) or a disk (power
// cut) would leave at that moment.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/testing/example_run.h"

namespace draftmill {

enum class Ending : std::uint8_t {
  kKill,                 ///< the process is gone; the kernel still writes what it was given
  kPowerCut,             ///< nothing survives that was not synced, neither bytes nor names
  kPowerCutNamesSurvive  ///< as kPowerCut, but names survive: a rename before its bytes
};
std::string_view EndingName(Ending ending);

/// The nth time that a run comes to the operation of this name, before it is carried out.
struct CrashPoint {
  std::string name;
  int nth = 1;
};

class CrashMatrix {
 public:
  /// `example` must outlive this. Points are those of a whole run; with a `change`, of the run after it: one that was
  /// complete, whose inputs `change` then changes.
  explicit CrashMatrix(const ExampleRun& example, const std::function<void()>& change = {});

  /// Why there are no points; empty where there are.
  const std::string& failure() const { return failure_; }
  const std::vector<CrashPoint>& points() const { return points_; }
  /// Those that stand for all: of each kind of operation on each kind of file the first and the last, and every
  /// `stride`-th of the others.
  std::vector<CrashPoint> Chosen(int stride) const;
  /// From now on the runs that are ended forget the syncs whose points begin so.
  void OmitSyncs(const std::string& point) { omitted_syncs_.push_back(point); }

  /// Ends a run at the point, continues it, and says what is then not as it should be; empty where nothing is.
  std::string Try(const CrashPoint& point, Ending ending);
  /// Runs that Try ended so far. In the others the order of events had led past the point.
  int ended_runs() const { return ended_runs_; }

 private:
  struct Crash {
    CrashPoint point;
    Ending ending = Ending::kKill;
  };

  /// Makes the work folder what it is when a run begins.
  void Restart() const;
  int RunInChild(const std::optional<Crash>& crash) const;
  [[noreturn]] void RunHere(const std::optional<Crash>& crash) const;
  std::string WhatDiffers() const;
  std::string LastWords() const;

  const ExampleRun& example_;
  std::string failure_;
  std::vector<CrashPoint> points_;
  std::vector<std::string> omitted_syncs_;
  int ended_runs_ = 0;
  int good_exit_status_ = 0;
  std::map<std::string, std::string> files_;
  std::string rows_;
};

}  // namespace draftmill
