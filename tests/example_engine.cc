// The program draftmill_example: the draftmill command with an engine that stands in for the real one
// (pipeline/testing/example_run.h), so that whole runs take a moment and need no torch, and with faults on request. Tests only.
//
// DRAFTMILL_EXAMPLE_FAULT=KIND:N does what KIND says when the process comes to its N-th change of the disk, SQLite's
// included (state/faulty_file_system.h, state/sqlite_over_file_system.h):
//   kill          SIGKILL
//   power         what was not synced is lost, then SIGKILL
//   power-names   the same, but names survive
//   full          from there on the disk takes nothing more
//   error         this change fails with an input/output error
// DRAFTMILL_EXAMPLE_CLOCK=1: the time of day jumps, forwards and backwards, by up to a day at each look.
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "pipeline/testing/example_run.h"
#include "state/faulty_file_system.h"
#include "state/sqlite_over_file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

class JumpingClock final : public Clock {
 public:
  std::int64_t MonotonicNs() override { return RealClock().MonotonicNs(); }
  std::int64_t UnixMs() override {
    constexpr std::int64_t kDayMs = 86'400'000;
    const std::int64_t step = static_cast<std::int64_t>(looks_++ * 2654435761U % 2000) - 1000;
    return RealClock().UnixMs() + step * (kDayMs / 1000);
  }

 private:
  std::atomic<std::uint32_t> looks_{0};
};

/// Does what the variable asks for at the change whose turn it is.
class FaultAtChange {
 public:
  FaultAtChange(FaultyFileSystem& files, std::string kind, std::int64_t at)
      : files_(files), kind_(std::move(kind)), at_(at) {}

  Status operator()() {
    if (is_ending_) StandStill();
    if (++changes_ != at_) return OkStatus();
    if (kind_ == "error") return IoError("injected");
    if (kind_ == "full") {
      files_.SetFreeBytes(0);
      return OkStatus();
    }
    is_ending_ = true;
    Status status;
    if (kind_ == "power") status = files_.PowerCut(Unsynced::kLost);
    if (kind_ == "power-names") status = files_.PowerCut(Unsynced::kNamesSurvive);
    if (!status.ok()) _exit(EXIT_FAILURE);
    static_cast<void>(std::raise(SIGKILL));
    StandStill();
  }

 private:
  [[noreturn]] static void StandStill() {
    for (;;) pause();
  }

  FaultyFileSystem& files_;
  const std::string kind_;
  const std::int64_t at_;
  std::atomic<std::int64_t> changes_{0};
  std::atomic<bool> is_ending_{false};
};

/// The files of the process; they and what they are asked to do live as long as it does.
FileSystem& FilesWithFaults(std::string_view fault) {
  static FaultyFileSystem& files = *std::make_unique<FaultyFileSystem>(RealFileSystem(), "/").release();
  static const SqliteOverFileSystem& databases = *std::make_unique<SqliteOverFileSystem>(files).release();
  static_cast<void>(databases);
  const std::size_t colon = fault.find(':');
  std::int64_t at = 0;
  if (colon != std::string_view::npos) std::from_chars(fault.data() + colon + 1, fault.data() + fault.size(), at);
  const auto hook = std::make_shared<FaultAtChange>(files, std::string(fault.substr(0, colon)), at);
  files.SetHook([hook](std::string_view) { return (*hook)(); });
  return files;
}

}  // namespace

RunEnvironment CommandEnvironment() {
  RunEnvironment environment{.make_extractor = &MakeExampleExtractor};
  if (const char* fault = std::getenv("DRAFTMILL_EXAMPLE_FAULT"); fault != nullptr && *fault != '\0') {
    environment.files = &FilesWithFaults(fault);
  }
  static JumpingClock clock;
  if (std::getenv("DRAFTMILL_EXAMPLE_CLOCK") != nullptr) environment.clock = &clock;
  return environment;
}

}  // namespace draftmill
