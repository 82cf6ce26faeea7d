// draftmill verify TARGET [--deep] [--repair]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "pipeline/facts_text.h"
#include "pipeline/progress.h"
#include "pipeline/stop_signal.h"
#include "pipeline/verify.h"
#include "state/file_system.h"
#include "state/run_lock.h"
#include "state/schema.h"
#include "state/state_reader.h"
#include "state/store.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct CheckOptions : TargetOptions {
  bool deep = false;
  bool repair = false;
};

Result<VerifyReport> Check(const CheckOptions& options, const std::string& work_folder) {
  auto state = StateReader::Open(work_folder);
  if (!state.ok() && state.status().code() == StatusCode::kNotFound) {
    return InvalidConfig("no run was started in " + work_folder + ": there is nothing to verify");
  }
  if (!state.ok()) return state.status();
  const auto progress = MakeProgress(STDERR_FILENO, RealClock());
  const StopSignal signals;
  return VerifyWork(RealFileSystem(), *state, work_folder,
                    {.deep = options.deep || options.repair,
                     .should_stop = StopSignal::Requested,
                     .on_progress = [&](std::int64_t files, std::int64_t bytes) {
                       progress->Update({.stage = "verify", .unit = "files", .done = files, .bytes = bytes});
                     }});
}

Status Repair(const std::string& work_folder, const VerifyReport& report) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<StateWriter> state, StateWriter::Open(work_folder, {}));
  DRAFTMILL_RETURN_IF_ERROR(MarkDamage(RealFileSystem(), work_folder, *state, report));
  return state->Close();
}

int Verify(const CheckOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  // A run that goes on replaces files while they are looked at.
  std::optional<Result<RunLock>> lock;
  if (RealFileSystem().Exists(StateDatabasePath(*work_folder))) lock.emplace(RunLock::Acquire(*work_folder, RealClock()));
  if (lock && !lock->ok()) return ReportFailure(lock->status());
  const auto report = Check(options, *work_folder);
  if (!report.ok()) return ReportFailure(report.status());
  if (options.repair && !report->ok()) {
    if (const Status repaired = Repair(*work_folder, *report); !repaired.ok()) return ReportFailure(repaired);
  }
  PrintFacts(VerifyReportJson(*report), options.json);
  if (report->ok()) return kExitComplete;
  return ReportFailure(Corrupt(VerifyAdvice(*report, options.target)));
}

}  // namespace

void AddVerifyCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("verify", "Compare the files of a work folder with its state.db; exits with 1 at a fault");
  auto options = std::make_shared<CheckOptions>();
  AddTargetOptions(*command, *options);
  command->add_flag("--deep", options->deep, "Read every byte and take every checksum");
  command->add_flag("--repair", options->repair,
                    "As --deep, and mark what is damaged, so that the next run makes it again");
  command->callback([options, &outcome] { outcome.exit_status = Verify(*options); });
}

}  // namespace draftmill
