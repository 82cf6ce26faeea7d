// draftmill verify TARGET [--deep] [--repair]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/progress/progress.h"
#include "pipeline/progress/stop_signal.h"
#include "pipeline/reports/facts_text.h"
#include "pipeline/verify/verify.h"
#include "pipeline/verify/verify_progress.h"
#include "state/file_system.h"
#include "state/run_lock.h"
#include "state/schema.h"
#include "state/state_place.h"
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
    const Status placed = PlaceState(RealFileSystem(), work_folder, std::nullopt);
    if (placed.code() == StatusCode::kNotFound) return InvalidConfig(placed.message());
    return InvalidConfig("no run was started in " + work_folder + ": there is nothing to verify");
  }
  if (!state.ok()) return state.status();
  const auto progress = MakeProgress(STDERR_FILENO, RealClock());
  const StopSignal signals;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t total, BytesToVerify(RealFileSystem(), *state, work_folder));
  const bool deep = options.deep || options.repair;
  VerifyProgress so_far(RealFileSystem(), RealClock(), work_folder);
  if (deep && so_far.first_chunk() > 0) {
    progress->Line("going on with chunk " + std::to_string(so_far.first_chunk()) +
                   ", where an earlier check was interrupted");
  }
  Result<VerifyReport> checked = VerifyWork(
      RealFileSystem(), *state, work_folder,
      {.deep = deep,
       .first_deep_chunk = so_far.first_chunk(),
       .on_chunk = [&](std::int64_t next, const VerifyReport& found) { so_far.Note(next, found); },
       .should_stop = StopSignal::Requested,
       .on_progress =
           [&](std::int64_t, std::int64_t bytes) {
             progress->Update({.stage = "verify", .unit = "bytes", .done = bytes, .total = total, .bytes = bytes});
           }});
  if (deep && checked.ok()) so_far.Finish();
  if (deep && !checked.ok()) so_far.Keep();
  if (!checked.ok()) return checked.status();
  VerifyReport report = std::move(checked).value();
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  DRAFTMILL_RETURN_IF_ERROR(
      CheckSourcesOfFaults(RealFileSystem(), *state, config.ok() ? config->base_folder() : work_folder, report));
  return report;
}

Status Repair(const std::string& work_folder, const VerifyReport& report) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<StateWriter> state, StateWriter::Open(work_folder, {}));
  DRAFTMILL_RETURN_IF_ERROR(MarkDamage(RealFileSystem(), work_folder, *state, report));
  return state->Close();
}

/// Nothing where there is no run, and where only reading is allowed.
Result<std::optional<RunLock>> Lock(const CheckOptions& options, const std::string& work_folder) {
  if (!RealFileSystem().Exists(StateDatabasePath(work_folder))) return std::optional<RunLock>();
  if (!options.repair) return RunLock::AcquireForReading(work_folder, RealClock());
  DRAFTMILL_ASSIGN_OR_RETURN(RunLock lock, RunLock::Acquire(work_folder, RealClock()));
  return std::optional<RunLock>(std::move(lock));
}

Status CheckThatNoRunBegan(const std::optional<RunLock>& lock, const std::string& work_folder) {
  if (lock) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<LockOwner> owner, RunLock::Peek(work_folder));
  if (!owner) return OkStatus();
  return Conflict("a run began in " + work_folder + " while its files were looked at (" + owner->ToString() +
                  "). Verify again when it has ended");
}

/// Status 1 is for faults that were found.
int ReportNotStarted(const Status& status) {
  static_cast<void>(ReportFailure(status));
  return kExitNotStarted;
}

int Verify(const CheckOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  // A run that goes on replaces files while they are looked at.
  const auto lock = Lock(options, *work_folder);
  if (!lock.ok()) return ReportNotStarted(lock.status());
  const auto report = Check(options, *work_folder);
  if (!report.ok()) return ReportFailure(report.status());
  if (const Status alone = CheckThatNoRunBegan(*lock, *work_folder); !alone.ok()) return ReportFailure(alone);
  if (options.repair && !report->ok()) {
    if (const Status repaired = Repair(*work_folder, *report); !repaired.ok()) return ReportFailure(repaired);
  }
  PrintFacts(VerifyReportJson(*report), options.json);
  if (report->ok()) return kExitComplete;
  return ReportFailure(Corrupt(VerifyAdvice(*report, options.target, options.repair)));
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
