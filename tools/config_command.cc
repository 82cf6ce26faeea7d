// draftmill config check|show FILE, draftmill config reference
#include <CLI/CLI.hpp>
#include <memory>

#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

int Check(const TargetOptions& options) {
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (options.json) {
    json::Value facts = json::Object{{"file", options.target}, {"valid", config.ok()}};
    if (!config.ok()) facts.Set("message", config.status().message());
    PrintJson(facts);
  }
  if (!config.ok()) return ReportFailure(config.status());
  if (!options.json) PrintData(options.target + " is valid");
  return kExitComplete;
}

int Show(const TargetOptions& options) {
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) return ReportFailure(config.status());
  if (options.json) {
    PrintJson(config->EffectiveValuesWithOrigins());
  } else {
    PrintData(config->EffectiveYaml());
  }
  return kExitComplete;
}

}  // namespace

void AddConfigCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* config = app.add_subcommand("config", "Check a pipeline file, or show what it comes to");
  config->require_subcommand(1);

  CLI::App* check = config->add_subcommand("check", "Say everything that is wrong with a pipeline file");
  auto check_options = std::make_shared<TargetOptions>();
  AddTargetOptions(*check, *check_options);
  check->callback([check_options, &outcome] { outcome.exit_status = Check(*check_options); });

  CLI::App* show = config->add_subcommand("show", "Print the value of every parameter and where it came from");
  auto show_options = std::make_shared<TargetOptions>();
  AddTargetOptions(*show, *show_options);
  show->callback([show_options, &outcome] { outcome.exit_status = Show(*show_options); });

  CLI::App* reference =
      config->add_subcommand("reference", "Print the page that describes every parameter, in markdown");
  reference->callback([] { PrintData(ConfigurationReference()); });
}

}  // namespace draftmill
