// draftmill states --model DIR --input ROWS.jsonl --output FILE.safetensors
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "pipeline/progress/stop_signal.h"
#include "stages/extract/states.h"
#include "tools/command.h"

namespace draftmill {
namespace {

json::Value Facts(const StatesReport& report) {
  return json::Object{{"rows", report.rows},
                      {"tokens", report.tokens},
                      {"quarantined", report.quarantined},
                      {"load_seconds", report.load_seconds},
                      {"extract_seconds", report.extract_seconds},
                      {"numerics_environment", report.numerics_environment},
                      {"weights_digest", report.weights_digest}};
}

int States(const StatesRequest& request, bool as_json) {
  const StopSignal signals;
  const Result<StatesReport> report = ComputeStates(request, StopSignal::Requested);
  if (!report.ok()) return ReportModelFailure(report.status());
  const int printed = PrintFacts(Facts(*report), as_json);
  return report->quarantined > 0 ? kExitQuarantined : printed;
}

}  // namespace

void AddStatesCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("states", "Compute hidden states of rows {\"input_ids\": [...]} without a run");
  auto request = std::make_shared<StatesRequest>();
  auto json_wanted = std::make_shared<bool>(false);
  ExtractOptions& options = request->options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command->add_option("--model", options.model_folder, "Folder with config.json and *.safetensors")
      ->required()
      ->type_name("DIR");
  command->add_option("--input", request->input_path, "JSON lines {\"input_ids\": [...]}")
      ->required()
      ->type_name("FILE");
  command->add_option("--output", request->output_path, "The safetensors file to write")->required()->type_name("FILE");
  command->add_option("--layers", options.layers, "Which x_k, ascending, e.g. 0,2,16; without it the eagle3 default")
      ->delimiter(',')
      ->type_name("K,K,...");
  command
      ->add_option("--dtype", options.dtype,
                   "Precision of computation and states; without it as config.json says, stored as bfloat16")
      ->check(CLI::IsMember({"bfloat16", "float32"}));
  command->add_option("--device", options.device)->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--weights", options.weights)->check(CLI::IsMember({"auto", "resident", "sharded", "streamed"}));
  command->add_option("--numerics", options.numerics)->check(CLI::IsMember({"hf", "fused"}));
  command->add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  command
      ->add_option("--memory", options.memory_bytes,
                   "Bytes for weights, activations and states, e.g. 2GiB; no limit without it")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  command->add_option("--batch-tokens", request->batch_tokens)->check(CLI::Range(1, 1 << 20));
  command->add_option("--block-tokens", request->block_tokens)->check(CLI::Range(1, 1 << 24));
  command->add_flag("--json", *json_wanted, "Print JSON");
  command->callback([request, json_wanted, &outcome] { outcome.exit_status = States(*request, *json_wanted); });
}

}  // namespace draftmill
