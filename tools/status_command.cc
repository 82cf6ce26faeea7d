// draftmill status TARGET [--watch]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "pipeline/reports/status_report.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

constexpr std::chrono::seconds kWatchInterval{1};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

struct StatusOptions : TargetOptions {
  bool watch = false;
};

void Print(const StatusOptions& options, const RunStatus& status) {
  if (options.json && options.watch) {
    PrintData(json::Write(status.facts));
  } else if (options.json) {
    PrintJson(status.facts);
  } else {
    const bool redraw = options.watch && ::isatty(STDOUT_FILENO) == 1;
    PrintData((redraw ? kClearScreen : "") + StatusAsText(status));
  }
}

int ShowStatus(const StatusOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  for (;;) {
    const auto status = ReadRunStatus(RealFileSystem(), *work_folder, RealClock());
    if (!status.ok()) return ReportFailure(status.status());
    Print(options, *status);
    if (!options.watch || !status->is_running) return status->exit_status;
    std::this_thread::sleep_for(kWatchInterval);
  }
}

}  // namespace

void AddStatusCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("status", "Print where a run stands; exits as the run did, 75 while it is unfinished");
  auto options = std::make_shared<StatusOptions>();
  AddTargetOptions(*command, *options);
  command->add_flag("--watch", options->watch,
                    "Print again every second until the run ends; with --json one line each");
  command->callback([options, &outcome] { outcome.exit_status = ShowStatus(*options); });
}

}  // namespace draftmill
