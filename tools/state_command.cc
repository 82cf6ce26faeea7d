// draftmill state TARGET rebuild
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "pipeline/run/rebuild.h"
#include "state/file_system.h"
#include "state/run_lock.h"
#include "tools/command.h"

namespace draftmill {
namespace {

Result<json::Value> Rebuild(const TargetOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string work_folder,
                             WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides()));
  if (!RealFileSystem().Exists(work_folder)) return InvalidConfig("there is no work folder " + work_folder);
  const Result<RunLock> lock = RunLock::Acquire(work_folder, RealClock());
  if (!lock.ok()) return lock.status();
  return RebuildState(RealFileSystem(), RealClock(), work_folder, std::string(ProgramVersion()));
}

}  // namespace

void AddStateCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("state", "Make a lost or damaged state.db again from the files of the work folder");
  auto options = std::make_shared<TargetOptions>();
  auto action = std::make_shared<std::string>();
  AddTargetOptions(*command, *options);
  command->add_option("ACTION", *action, "rebuild")->required()->check(CLI::IsMember({"rebuild"}));
  command->callback(
      [options, action, &outcome] { outcome.exit_status = PrintFacts(Rebuild(*options), options->json); });
}

}  // namespace draftmill
