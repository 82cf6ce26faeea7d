// The draftmill command. docs/commands.md describes every command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "pipeline/config/nearest_name.h"
#include "tools/command.h"

namespace draftmill {
namespace {

constexpr const char* kDescription =
    "draftmill turns chat data into the training set of an EAGLE-3 drafter.\n"
    "TARGET is a pipeline file or the work folder of a run. Exit status: 0 complete, 3 complete with quarantined "
    "samples,\n"
    "2 nothing was started, 75 stopped and to be continued by the same command, 1 failed.";

/// What an unknown command was most likely meant to be; nothing where the command is known or missing.
std::string AboutUnknownCommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return "";
  std::string message = "draftmill: there is no command `" + std::string(argv[1]) + "`";
  if (const auto nearest = NearestName(argv[1], names)) return message + "; did you mean `" + *nearest + "`?";
  return message + "; draftmill --help lists them";
}

/// A program that is started without standard input, output or error would open its own files under their numbers, and write
/// its messages into them. Opened for reading, so that output that goes nowhere still fails.
void OccupyStandardStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    const bool is_closed = ::fcntl(stream, F_GETFD) == -1 && errno == EBADF;
    if (is_closed && ::open("/dev/null", O_RDONLY) != stream) std::_Exit(kExitNotStarted);
  }
}

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file above the limit of its user fails to be written, as on a full disk
  CLI::App app(kDescription, "draftmill");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(ProgramVersion()));
  CommandOutcome outcome;
  AddRunCommand(app, outcome);
  AddPlanCommand(app, outcome);
  AddRerunCommand(app, outcome);
  AddStatusCommand(app, outcome);
  AddWhyCommand(app, outcome);
  AddStatesCommand(app, outcome);
  AddInspectCommand(app, outcome);
  AddExportCommand(app, outcome);
  AddQuarantineCommand(app, outcome);
  AddVerifyCommand(app, outcome);
  AddStateCommand(app, outcome);
  AddStopCommand(app, outcome);
  AddLogsCommand(app, outcome);
  AddBenchCommand(app, outcome);
  AddTokenizeCommand(app, outcome);
  AddConfigCommand(app, outcome);
  AddDoctorCommand(app, outcome);
  AddVersionCommand(app, outcome);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string message = AboutUnknownCommand(app, argc, argv); !message.empty()) {
      std::fprintf(stderr, "%s\n", message.c_str());
      return kExitNotStarted;
    }
    // Help and version are "errors" of status 0; a wrong command line has started nothing.
    outcome.exit_status = app.exit(error) == 0 ? kExitComplete : kExitNotStarted;
  }
  const bool has_failed = outcome.exit_status != kExitComplete && outcome.exit_status != kExitQuarantined;
  if (has_failed || FlushOutput().ok()) return outcome.exit_status;
  return ReportFailure(OutputStatus());
}

}  // namespace
}  // namespace draftmill

int main(int argc, char** argv) {
  try {
    return draftmill::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "draftmill: internal error: %s\n", error.what());
    return draftmill::kExitFailed;
  }
}
