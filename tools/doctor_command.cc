// draftmill doctor model
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "pipeline/reports/model_doctor.h"
#include "stages/extract/model/model_folder.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct DoctorOptions {
  ExtractOptions extract;
  std::string reference;
  bool config_only = false;
  bool json = false;
};

int Refuse(const Status& reason, bool as_json) {
  if (as_json) PrintJson(json::Object{{"verdict", "refuse"}, {"reason", json::Object{{"message", reason.message()}}}});
  ReportFailure(reason);
  return kExitNotStarted;
}

int DoctorModelFolder(const DoctorOptions& options) {
  const Result<json::Value> facts =
      ReportModel(options.extract.model_folder, options.config_only ? ReportScope::kConfigOnly : ReportScope::kHeaders);
  if (!facts.ok()) return Refuse(facts.status(), options.json);
  json::Object report{{"verdict", "accept"}};
  for (const json::Member& member : facts->as_object()) report.push_back(member);
  if (options.config_only) return PrintFacts(json::Value(std::move(report)), options.json);
  const Result<ModelExamination> examination = DoctorModel(options.extract, options.reference);
  if (!examination.ok() && IsAboutTheModel(examination.status())) return Refuse(examination.status(), options.json);
  if (!examination.ok()) return ReportFailure(examination.status());
  report.emplace_back("examination", examination->facts);
  PrintFacts(json::Value(std::move(report)), options.json);
  return examination->sound ? kExitComplete : kExitFailed;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* doctor = app.add_subcommand("doctor", "Examine what a run would use, and say what is wrong with it");
  doctor->require_subcommand(1);
  CLI::App* model = doctor->add_subcommand(
      "model", "Whether a model folder can be run and its states trusted, and every number read from it");
  auto options = std::make_shared<DoctorOptions>();
  ExtractOptions& extract = options->extract;
  extract.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  model->add_option("FOLDER", extract.model_folder, "Folder with config.json, *.safetensors and a tokenizer")
      ->required();
  model->add_flag("--config-only", options->config_only,
                  "Look at config.json and the names in the index alone; the weights need not be there");
  model->add_option("--reference", options->reference, "States made by tools/reference_states.py to compare with")
      ->type_name("FILE");
  model->add_option("--layers", extract.layers, "Which x_k, ascending; the reference's where one is given")
      ->delimiter(',')
      ->type_name("K,K,...");
  model->add_option("--dtype", extract.dtype)->check(CLI::IsMember({"bfloat16", "float32"}));
  model->add_option("--device", extract.device)->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  model->add_option("--weights", extract.weights)->check(CLI::IsMember({"auto", "resident", "sharded", "streamed"}));
  model->add_option("--numerics", extract.numerics)->check(CLI::IsMember({"hf", "fused"}));
  model->add_option("--threads", extract.threads)->check(CLI::Range(1, 1024));
  model->add_flag("--json", options->json, "Print JSON");
  model->callback([options, &outcome] { outcome.exit_status = DoctorModelFolder(*options); });
}

}  // namespace draftmill
