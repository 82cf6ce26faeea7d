// draftmill logs TARGET [--follow]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "pipeline/progress/stop_signal.h"
#include "pipeline/reports/detached_run.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct LogsOptions : TargetOptions {
  bool follow = false;
};

Status PrintLog(const LogsOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string work_folder,
                             WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides()));
  Result<std::string> path = NewestLog(RealFileSystem(), work_folder);
  if (!path.ok())
    return path.status().code() == StatusCode::kNotFound ? InvalidConfig(path.status().message()) : path.status();
  if (options.json) {
    PrintJson(json::Object{{"work", work_folder}, {"log", *path}});
    return OkStatus();
  }
  const StopSignal signals;
  return ReadLog(RealFileSystem(), work_folder, *path, options.follow, StopSignal::Requested,
                 [](std::string_view text) {
                   std::fwrite(text.data(), 1, text.size(), stdout);
                   std::fflush(stdout);
                 });
}

}  // namespace

void AddLogsCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("logs", "Print what a run wrote that was started with --detach");
  auto options = std::make_shared<LogsOptions>();
  AddTargetOptions(*command, *options);
  command->add_flag("--follow", options->follow, "Go on printing until the run ends");
  command->callback([options, &outcome] {
    const Status status = PrintLog(*options);
    outcome.exit_status = status.ok() ? kExitComplete : ReportFailure(status);
  });
}

}  // namespace draftmill
