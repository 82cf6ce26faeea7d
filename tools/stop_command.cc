// draftmill stop TARGET
#include <CLI/CLI.hpp>
#include <memory>

#include "pipeline/reports/stop_run.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

constexpr std::int64_t kWaitMs = 30'000;

int Stop(const TargetOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  const Status stopped = StopRun(*work_folder, RealClock(), kWaitMs);
  if (!stopped.ok()) return ReportFailure(stopped);
  if (options.json) {
    PrintJson(json::Object{{"work", *work_folder}, {"running", false}});
  } else {
    PrintData("no run is at work in " + *work_folder);
  }
  return kExitComplete;
}

}  // namespace

void AddStopCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("stop", "Ask a run to end: it finishes or drops what is in flight and can be continued");
  auto options = std::make_shared<TargetOptions>();
  AddTargetOptions(*command, *options);
  command->callback([options, &outcome] { outcome.exit_status = Stop(*options); });
}

}  // namespace draftmill
