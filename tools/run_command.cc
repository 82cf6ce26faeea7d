// draftmill run TARGET, draftmill rerun TARGET STAGE
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/progress.h"
#include "pipeline/run.h"
#include "stages/stage_spec.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

int Run(const TargetOptions& options, RunRequest request) {
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) return ReportFailure(config.status());
  request.program_version = ProgramVersion();
  request.json = options.json;
  auto progress = MakeProgress(STDERR_FILENO, RealClock());
  const RunReport report = RunPipeline(*config, request, *progress);
  progress.reset();  // the last state stands on the screen before the report does
  if (options.json) {
    PrintJson(report.facts);
  } else if (report.exit_status == kExitComplete || report.exit_status == kExitQuarantined) {
    PrintData(report.summary);
  } else {
    std::fprintf(stderr, "%s\n", report.summary.c_str());
  }
  return report.exit_status;
}

std::vector<std::string> StageNames() {
  std::vector<std::string> names;
  for (const StageSpec* stage : AllStages()) names.push_back(stage->name);
  return names;
}

constexpr const char* kAcceptChanges = "Redo the stages whose parameters, inputs or code changed, instead of refusing";

}  // namespace

void AddRunCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("run", "Run the pipeline, or continue where it stopped");
  auto options = std::make_shared<TargetOptions>();
  auto request = std::make_shared<RunRequest>();
  AddTargetOptions(*command, *options);
  command->add_flag("--accept-changes", request->accept_changes, kAcceptChanges);
  command->add_option("--until", request->until_stage, "Go no further than this stage")->check(CLI::IsMember(StageNames()));
  command->callback([options, request, &outcome] { outcome.exit_status = Run(*options, *request); });
}

void AddRerunCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("rerun", "Compute a stage again, then the stages whose input bytes changed");
  auto options = std::make_shared<TargetOptions>();
  auto request = std::make_shared<RunRequest>();
  auto stage = std::make_shared<std::string>();
  AddTargetOptions(*command, *options);
  command->add_option("STAGE", *stage, "The stage to compute again")->required()->check(CLI::IsMember(StageNames()));
  command->add_flag("--accept-changes", request->accept_changes, kAcceptChanges);
  command->callback([options, request, stage, &outcome] {
    request->rerun_stage = *stage;
    outcome.exit_status = Run(*options, *request);
  });
}

}  // namespace draftmill
