// draftmill doctor model
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "stages/extract/model_folder.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct DoctorOptions {
  std::string folder;
  bool config_only = false;
  bool json = false;
};

int DoctorModel(const DoctorOptions& options) {
  const Result<json::Value> facts =
      ReportModel(options.folder, options.config_only ? ReportScope::kConfigOnly : ReportScope::kHeaders);
  json::Object report;
  report.emplace_back("verdict", facts.ok() ? "accept" : "refuse");
  if (!facts.ok()) {
    report.emplace_back("reason", json::Object{{"message", facts.status().message()}});
    if (options.json) PrintJson(report);
    ReportFailure(facts.status());
    return kExitNotStarted;
  }
  for (const json::Member& member : facts->as_object()) report.push_back(member);
  return PrintFacts(json::Value(std::move(report)), options.json);
}

}  // namespace

void AddDoctorCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* doctor = app.add_subcommand("doctor", "Examine what a run would use, and say what is wrong with it");
  doctor->require_subcommand(1);
  CLI::App* model = doctor->add_subcommand("model", "Whether a model folder can be run, and every number read from it");
  auto options = std::make_shared<DoctorOptions>();
  model->add_option("FOLDER", options->folder, "Folder with config.json and *.safetensors")->required();
  model->add_flag("--config-only", options->config_only,
                  "Look at config.json and the names in the index alone; the weights need not be there");
  model->add_flag("--json", options->json, "Print JSON");
  model->callback([options, &outcome] { outcome.exit_status = DoctorModel(*options); });
}

}  // namespace draftmill
