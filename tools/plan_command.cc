// draftmill plan TARGET
#include <CLI/CLI.hpp>
#include <memory>

#include "pipeline/run/run.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

int Plan(const TargetOptions& options) {
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) return ReportFailure(config.status());
  const Result<json::Value> plan = PlanRun(*config);
  if (plan.ok()) return PrintFacts(plan, options.json);
  ReportFailure(plan.status());
  return ExitStatusBeforeStart(plan.status());
}

}  // namespace

void AddPlanCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("plan", "Say what a run would do and why, and what it would take; change nothing");
  auto options = std::make_shared<TargetOptions>();
  AddTargetOptions(*command, *options);
  command->callback([options, &outcome] { outcome.exit_status = Plan(*options); });
}

}  // namespace draftmill
