// draftmill run TARGET, draftmill rerun TARGET STAGE
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/shell_word.h"
#include "pipeline/progress/progress.h"
#include "pipeline/progress/stop_signal.h"
#include "pipeline/reports/detached_run.h"
#include "pipeline/run/run.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct RunOptions : TargetOptions {
  bool detach = false;
};

int RunHere(const TargetOptions& options, const Config& config, const RunRequest& request) {
  auto progress = MakeProgress(STDERR_FILENO, RealClock());
  const RunReport report = RunPipeline(config, request, *progress, CommandEnvironment());
  progress.reset();  // the last state stands on the screen before the report does
  if (options.json) {
    PrintJson(report.facts);
  } else if (report.exit_status == kExitComplete || report.exit_status == kExitQuarantined) {
    PrintData(report.summary);
  } else {
    std::fprintf(stderr, "%s\n", report.summary.c_str());
  }
  // The run is what it is, whether or not its report was read.
  if (!FlushOutput().ok()) DropOutput();
  return report.exit_status;
}

int RunDetached(const TargetOptions& options, const Config& config, RunRequest request) {
  const auto detached =
      Detach(RealFileSystem(), RealClock(), config.work_folder(), [&](const std::function<void()>& started) {
        request.on_started = started;
        return RunHere(options, config, request);
      });
  if (!detached.ok()) return ReportFailure(detached.status());
  if (!detached->is_running) {
    std::fputs(detached->log.c_str(), stderr);
    return detached->exit_status;
  }
  if (options.json) {
    PrintJson(
        json::Object{{"work", config.work_folder()}, {"process", detached->process}, {"log", detached->log_path}});
  } else {
    const std::string target = ShellWord(options.target);
    PrintData("the run goes on as process " + std::to_string(detached->process) + ". `draftmill status " + target +
              "` shows where it stands, `draftmill logs " + target + " --follow` what it writes, `draftmill stop " +
              target + "` ends it");
  }
  return kExitComplete;
}

int Run(const RunOptions& options, RunRequest request) {
  OutliveReaders();
  const StopSignal signals;  // from here on a signal ends with 75, also before the run has begun
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) return ReportFailure(config.status());
  request.program_version = ProgramVersion();
  request.json = options.json;
  return options.detach ? RunDetached(options, *config, request) : RunHere(options, *config, request);
}

void AddRunOptions(CLI::App& command, RunOptions& options, RunRequest& request) {
  AddTargetOptions(command, options);
  command.add_flag("--accept-changes", request.accept_changes,
                   "Redo the stages whose parameters, inputs or code changed, instead of refusing");
  command.add_flag("--detach", options.detach, "Go on in the background; see `logs`, `status` and `stop`");
  command
      .add_option("--state-dir", request.state_folder,
                  "A folder on a local disk for state.db, where the work folder's disk does not do")
      ->type_name("DIR");
}

}  // namespace

void AddRunCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("run", "Run the pipeline, or continue where it stopped");
  auto options = std::make_shared<RunOptions>();
  auto request = std::make_shared<RunRequest>();
  AddRunOptions(*command, *options, *request);
  command->add_option("--until", request->until_stage, "Go no further than this stage")
      ->check(CLI::IsMember(StageNames()));
  command->callback([options, request, &outcome] { outcome.exit_status = Run(*options, *request); });
}

void AddRerunCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("rerun", "Compute a stage again, then the stages whose input bytes changed");
  auto options = std::make_shared<RunOptions>();
  auto request = std::make_shared<RunRequest>();
  auto stage = std::make_shared<std::string>();
  AddRunOptions(*command, *options, *request);
  command->add_option("STAGE", *stage, "The stage to compute again")->required()->check(CLI::IsMember(StageNames()));
  command->callback([options, request, stage, &outcome] {
    request->rerun_stage = *stage;
    outcome.exit_status = Run(*options, *request);
  });
}

}  // namespace draftmill
