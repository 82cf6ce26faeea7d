#include "pipeline/testing/crash_matrix.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>

#include "pipeline/testing/state_facts.h"
#include "pipeline/verify/verify.h"
#include "state/faulty_file_system.h"
#include "state/sqlite_over_file_system.h"
#include "state/state_reader.h"

namespace draftmill {
namespace {

namespace fs = std::filesystem;

constexpr int kCrashed = 99;
constexpr const char* kPointsName = "points.txt";
constexpr const char* kStartName = "start";
constexpr const char* kWordsName = "words.txt";

/// Ends the process at the nth time that a point is reached. The other threads stand still from then on.
class CrashHook {
 public:
  CrashHook(FaultyFileSystem& files, CrashPoint point, Ending ending)
      : files_(files), point_(std::move(point)), ending_(ending) {}

  Status operator()(std::string_view point) {
    if (has_crashed_) StandStill();
    if (point != point_.name || ++seen_ != point_.nth) return OkStatus();
    has_crashed_ = true;
    Status status;
    if (ending_ == Ending::kPowerCut) status = files_.PowerCut(Unsynced::kLost);
    if (ending_ == Ending::kPowerCutNamesSurvive) status = files_.PowerCut(Unsynced::kNamesSurvive);
    _exit(status.ok() ? kCrashed : kCrashed + 1);
  }

 private:
  [[noreturn]] static void StandStill() {
    for (;;) pause();
  }

  FaultyFileSystem& files_;
  const CrashPoint point_;
  const Ending ending_;
  std::atomic<bool> has_crashed_{false};
  std::atomic<int> seen_{0};
};

/// A point without its numbers: the kind of operation on the kind of file.
std::string KindOf(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

/// The points of a run in their order, each with how often it had been reached.
std::vector<CrashPoint> Numbered(const std::vector<std::string>& names) {
  std::map<std::string, int> seen;
  std::vector<CrashPoint> points;
  for (const std::string& name : names) points.push_back({name, ++seen[name]});
  return points;
}

}  // namespace

std::string_view EndingName(Ending ending) {
  switch (ending) {
    case Ending::kKill: return "kill";
    case Ending::kPowerCut: return "power cut";
    case Ending::kPowerCutNamesSurvive: return "power cut, names survive";
  }
  return "";
}

CrashMatrix::CrashMatrix(const ExampleRun& example, const std::function<void()>& change) : example_(example) {
  Restart();
  good_exit_status_ = RunInChild(std::nullopt);
  if (change) {
    fs::rename(example_.work(), example_.folder() / kStartName);
    change();
    Restart();
    good_exit_status_ = RunInChild(std::nullopt);
  }
  if (good_exit_status_ != 0 && good_exit_status_ != 3) {
    failure_ = "the undisturbed run ended with " + std::to_string(good_exit_status_) + ": " + LastWords();
    return;
  }
  std::istringstream names(ExampleRun::Read(example_.folder() / kPointsName));
  std::vector<std::string> list;
  for (std::string name; std::getline(names, name);) list.push_back(name);
  points_ = Numbered(list);
  files_ = example_.Published();
  rows_ = StateFacts(example_.work().string());
}

void CrashMatrix::Restart() const {
  fs::remove_all(example_.work());
  const fs::path start = example_.folder() / kStartName;
  if (fs::exists(start)) fs::copy(start, example_.work(), fs::copy_options::recursive);
}

std::vector<CrashPoint> CrashMatrix::Chosen(int stride) const {
  std::map<std::string, std::size_t> last_of_kind;
  for (std::size_t i = 0; i < points_.size(); ++i) last_of_kind[KindOf(points_[i].name)] = i;
  std::set<std::string> kinds;
  std::vector<CrashPoint> chosen;
  int others = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const std::string kind = KindOf(points_[i].name);
    const bool is_first = kinds.insert(kind).second;
    if (is_first || last_of_kind[kind] == i || others++ % stride == 0) chosen.push_back(points_[i]);
  }
  return chosen;
}

std::string CrashMatrix::Try(const CrashPoint& point, Ending ending) {
  const std::string what =
      std::string(EndingName(ending)) + " at " + point.name + " #" + std::to_string(point.nth) + ": ";
  Restart();
  const int first = RunInChild(Crash{point, ending});
  if (first == kCrashed) ++ended_runs_;
  if (first != kCrashed && first != good_exit_status_) {
    return what + "the run that was to be ended came to " + std::to_string(first) + ": " + LastWords();
  }
  const int second = RunInChild(std::nullopt);
  if (second != good_exit_status_)
    return what + "continued, it ended with " + std::to_string(second) + ": " + LastWords();
  const std::string difference = WhatDiffers();
  return difference.empty() ? "" : what + difference;
}

int CrashMatrix::RunInChild(const std::optional<Crash>& crash) const {
  const pid_t child = fork();
  if (child == 0) RunHere(crash);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

void CrashMatrix::RunHere(const std::optional<Crash>& crash) const {
  FaultyFileSystem files(RealFileSystem(), example_.work().string());
  const SqliteOverFileSystem databases(files);
  std::optional<CrashHook> hook;
  if (crash) {
    for (const std::string& point : omitted_syncs_) files.OmitSyncs(point);
    hook.emplace(files, crash->point, crash->ending);
    files.SetHook([&hook](std::string_view point) { return (*hook)(point); });
  }
  const RunReport report = example_.Run({}, {.files = &files, .make_extractor = &MakeExampleExtractor});
  std::string names;
  for (const std::string& name : files.Points()) names += name + "\n";
  ExampleRun::Write(example_.folder() / kPointsName, names);
  ExampleRun::Write(example_.folder() / kWordsName, report.summary);
  _exit(report.exit_status);
}

std::string CrashMatrix::LastWords() const { return ExampleRun::Read(example_.folder() / kWordsName); }

std::string CrashMatrix::WhatDiffers() const {
  const std::map<std::string, std::string> files = example_.Published();
  for (const auto& [name, content] : files_) {
    const auto found = files.find(name);
    if (found == files.end()) return name + " is missing";
    if (found->second != content) return name + " has other bytes";
  }
  for (const auto& [name, content] : files) {
    if (!files_.contains(name)) return name + " was left behind";
  }
  const std::string work = example_.work().string();
  if (const std::string rows = StateFacts(work); rows != rows_)
    return "other rows in state.db: " + FirstDifference(rows_, rows);
  Result<StateReader> state = StateReader::Open(work);
  if (!state.ok()) return state.status().message();
  const Result<VerifyReport> report = VerifyWork(RealFileSystem(), *state, work, {.deep = true});
  if (!report.ok()) return report.status().message();
  if (!report->ok()) return report->faults.front().file + ": " + report->faults.front().message;
  return report->notes.empty() ? "" : report->notes.front();
}

}  // namespace draftmill
