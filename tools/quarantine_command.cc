// draftmill quarantine TARGET list|show|export
#include <CLI/CLI.hpp>
#include <memory>

#include "pipeline/quarantine_report.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct QuarantineOptions : TargetOptions {
  std::string action;
  std::int64_t failure = 0;
  QuarantineQuery query;
};

Result<json::Value> ReadQuarantine(const QuarantineOptions& options, const std::string& work_folder) {
  if (options.action == "show") return ShowFailure(RealFileSystem(), work_folder, options.failure);
  return ListQuarantine(RealFileSystem(), work_folder, options.query);
}

int Quarantine(const QuarantineOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  if (options.action == "export") {
    const Status exported =
        ExportQuarantine(RealFileSystem(), *work_folder, options.query, [](const json::Value& failure) {
          PrintData(json::Write(failure));
          return OkStatus();
        });
    return exported.ok() ? kExitComplete : ReportFailure(exported);
  }
  return PrintFacts(ReadQuarantine(options, *work_folder), options.json);
}

}  // namespace

void AddQuarantineCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("quarantine", "List, show or export the rows and samples that did not go on");
  auto options = std::make_shared<QuarantineOptions>();
  AddTargetOptions(*command, *options);
  command->add_option("ACTION", options->action, "list, show or export (one line of JSON each, with the row)")
      ->required()
      ->check(CLI::IsMember({"list", "show", "export"}));
  CLI::Option* number = command->add_option("FAILURE", options->failure, "For show: the failure's number");
  command->add_option("--stage", options->query.stage, "Only of this stage");
  command->add_option("--reason", options->query.reason, "Only with this reason");
  command->add_option("--after", options->query.after, "For list: only failures with a higher number");
  command->add_option("--limit", options->query.limit, "For list: at most so many")->check(CLI::Range(1, 1'000'000));
  command->callback([options, number, &outcome] {
    if (options->action == "show" && number->count() == 0) throw CLI::RequiredError("FAILURE");
    outcome.exit_status = Quarantine(*options);
  });
}

}  // namespace draftmill
