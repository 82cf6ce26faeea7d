// What the commands of draftmill share: options, output and exit statuses. One file per command, no logic: a command
// reads its arguments, calls the function that does the work, prints what it returns and says how it ended.
//
// Data goes to standard output, everything else to standard error. With --json standard output holds one JSON value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "pipeline/config/config.h"
#include "pipeline/exit_status.h"
#include "pipeline/run/run.h"

namespace CLI {
class App;
}

namespace draftmill {

/// What the chosen command left for main().
struct CommandOutcome {
  int exit_status = kExitComplete;
};

/// The options of commands that work on TARGET.
struct TargetOptions {
  std::string target;
  std::optional<std::string> work;
  bool json = false;

  ConfigOverrides overrides() const { return {.work_folder = work}; }
};

/// Adds TARGET, --work and --json to a command. `options` must outlive the parsing.
void AddTargetOptions(CLI::App& command, TargetOptions& options);

/// Writes to standard output, with a line break at the end if there is none. A failure is kept for OutputStatus.
void PrintData(std::string_view text);

/// The first failure of PrintData so far: what comes in pieces stops there.
const Status& OutputStatus();

/// Hands everything printed to the system: only then a full disk shows. The first failure of all output. `main` calls it
/// after every command, so that a command whose words got lost does not end with 0.
const Status& FlushOutput();

/// Forgets what could not be written, and that it could not: for a command whose exit status speaks of its work.
void DropOutput();

/// Writes JSON to standard output, indented.
void PrintJson(const json::Value& value);
/// From here on a reader of our output that has gone (a closed terminal behind `| tee`, a lost connection) is no reason to
/// end: what is not read is lost, the work goes on.
void OutliveReaders();
/// Prints the facts for people or as JSON, or reports the failure as ReportLookFailure does; returns the exit status.
int PrintFacts(const Result<json::Value>& facts, bool as_json);
/// "draftmill: <message>" to standard error; returns the exit status of the failure.
int ReportFailure(const Status& status);
/// As ReportFailure, for commands that only look: what is asked for and is not there has started nothing.
int ReportLookFailure(const Status& status);
/// Whether a failure says something of the model or the input, not of this machine or program.
bool IsAboutTheModel(const Status& status);
/// As ReportFailure, for commands on a model folder: what is wrong with model or input was found before anything was started.
int ReportModelFailure(const Status& status);

/// What runs of this program work with. `draftmill` has tools/engine.cc; tests link another.
RunEnvironment CommandEnvironment();

/// The names of all stages, in the order of the data.
std::vector<std::string> StageNames();

/// Whether standard output is a terminal that shows colours (NO_COLOR unset).
bool StandardOutputShowsColours();

/// The version of this build, e.g. "0.1.0".
std::string_view ProgramVersion();

// Each adds its command; the callback sets `outcome`.
void AddBenchCommand(CLI::App& app, CommandOutcome& outcome);
void AddConfigCommand(CLI::App& app, CommandOutcome& outcome);
void AddVersionCommand(CLI::App& app, CommandOutcome& outcome);
void AddRunCommand(CLI::App& app, CommandOutcome& outcome);
void AddRerunCommand(CLI::App& app, CommandOutcome& outcome);
void AddPlanCommand(CLI::App& app, CommandOutcome& outcome);
void AddStatusCommand(CLI::App& app, CommandOutcome& outcome);
void AddExportCommand(CLI::App& app, CommandOutcome& outcome);
void AddInspectCommand(CLI::App& app, CommandOutcome& outcome);
void AddWhyCommand(CLI::App& app, CommandOutcome& outcome);
void AddVerifyCommand(CLI::App& app, CommandOutcome& outcome);
void AddStopCommand(CLI::App& app, CommandOutcome& outcome);
void AddTokenizeCommand(CLI::App& app, CommandOutcome& outcome);
void AddQuarantineCommand(CLI::App& app, CommandOutcome& outcome);
void AddDoctorCommand(CLI::App& app, CommandOutcome& outcome);
void AddStatesCommand(CLI::App& app, CommandOutcome& outcome);
void AddLogsCommand(CLI::App& app, CommandOutcome& outcome);
void AddStateCommand(CLI::App& app, CommandOutcome& outcome);

}  // namespace draftmill
