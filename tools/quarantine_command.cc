// draftmill quarantine TARGET list|show|export
#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "pipeline/reports/quarantine_report.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct QuarantineOptions : TargetOptions {
  std::string action;
  std::int64_t failure = 0;
  bool rows = false;
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
        ExportQuarantine(RealFileSystem(), *work_folder, options.query, [&](const json::Value& failure) {
          const std::optional<std::string> line = options.rows ? RowOfFailure(failure) : json::Write(failure);
          if (line) PrintData(*line);
          return OutputStatus();
        });
    return exported.ok() ? kExitComplete : ReportLookFailure(exported);
  }
  return PrintFacts(ReadQuarantine(options, *work_folder), options.json);
}

/// An argument that means nothing to this action is a mistake that should be seen.
void RefuseElsewhere(const std::string& action, std::initializer_list<std::string_view> actions,
                     std::initializer_list<const CLI::Option*> options) {
  if (std::find(actions.begin(), actions.end(), action) != actions.end()) return;
  for (const CLI::Option* option : options) {
    if (option->count() > 0)
      throw CLI::ValidationError(option->get_name(), "means nothing to `quarantine " + action + "`");
  }
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
  number->check(CLI::PositiveNumber);
  CLI::Option* stage = command->add_option("--stage", options->query.stage, "Only of this stage");
  stage->check(CLI::IsMember(StageNames()));
  CLI::Option* reason = command->add_option("--reason", options->query.reason, "Only with this reason");
  CLI::Option* after =
      command->add_option("--after", options->query.after, "For list: only failures with a higher number");
  after->check(CLI::NonNegativeNumber);
  CLI::Option* limit = command->add_option("--limit", options->query.limit, "For list: at most so many");
  limit->check(CLI::Range(1, 1'000'000));
  CLI::Option* rows =
      command->add_flag("--rows", options->rows, "For export: the rows alone, to be mended and used as a source");
  command->callback([=, &outcome] {
    if (options->action == "show" && number->count() == 0) throw CLI::RequiredError("FAILURE");
    RefuseElsewhere(options->action, {"show"}, {number});
    RefuseElsewhere(options->action, {"list"}, {after, limit});
    RefuseElsewhere(options->action, {"export"}, {rows});
    RefuseElsewhere(options->action, {"list", "export"}, {stage, reason});
    outcome.exit_status = Quarantine(*options);
  });
}

}  // namespace draftmill
