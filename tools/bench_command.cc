// draftmill bench checkpoint|extract: measurements, without a run. Builds without torch have `checkpoint` alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#ifdef DRAFTMILL_WITH_TORCH
#include "pipeline/bench/extract_bench.h"
#endif
#include "stages/extract/model/random_checkpoint.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct CheckpointOptions {
  std::string config;
  std::string folder;
  std::uint64_t seed = 7;
};

int MakeCheckpoint(const CheckpointOptions& options) {
  const Result<std::int64_t> bytes = WriteRandomCheckpoint(options.config, options.folder, options.seed);
  if (!bytes.ok()) return ReportFailure(bytes.status());
  PrintData(fmt::format("{}: {} bytes of random weights", options.folder, *bytes));
  return kExitComplete;
}

void AddCheckpoint(CLI::App& bench, CommandOutcome& outcome) {
  CLI::App* command = bench.add_subcommand("checkpoint", "Write a checkpoint of random weights for a config.json");
  auto options = std::make_shared<CheckpointOptions>();
  command->add_option("CONFIG", options->config, "The model's config.json")->required();
  command->add_option("FOLDER", options->folder, "The model folder to be made")->required();
  command->add_option("--seed", options->seed, "The same seed gives the same bytes")->capture_default_str();
  command->callback([options, &outcome] { outcome.exit_status = MakeCheckpoint(*options); });
}

#ifdef DRAFTMILL_WITH_TORCH
void PrintRate(const char* name, const ExtractRate& rate, const ExtractBenchReport& report) {
  std::string line =
      fmt::format("{:<24} {:>9.0f} tokens/s {:>8.3f} GB/s of states {:>8.1f} TFLOP/s", name, rate.tokens_per_second(),
                  rate.tokens_per_second() * report.state_bytes_per_token * 1e-9, rate.flops_per_second() * 1e-12);
  if (report.product_flops() > 0)
    line += fmt::format("  {:.3f} of products", rate.flops_per_second() / report.product_flops());
  line += fmt::format("  {:.1f} cores busy", rate.processor_seconds / rate.seconds);
  PrintData(line);
}

int Measure(const ExtractBenchRequest& request, bool as_json) {
  const Result<ExtractBenchReport> report =
      MeasureExtract(request, [](const std::string& part) { std::fprintf(stderr, "draftmill: %s\n", part.c_str()); });
  if (!report.ok()) return ReportFailure(report.status());
  if (as_json) {
    PrintJson(ExtractBenchFacts(*report));
    return kExitComplete;
  }
  PrintData(fmt::format("{}\nbatches of {} tokens, samples of {} on average, loaded in {:.1f} s",
                        report->numerics_environment, report->batch_tokens, report->mean_tokens, report->load_seconds));
  if (report->product_flops() > 0) {
    PrintData(fmt::format("{:<24} {:>8.1f} TFLOP/s before, {:.1f} after; {:.1f} GB/s to the host",
                          "products, sustained", report->product_flops_before * 1e-12,
                          report->product_flops_after * 1e-12, report->to_host_bytes * 1e-9));
  }
  if (!report->decisions.empty()) PrintData(report->decisions);
  PrintRate("states to nowhere", report->nowhere, *report);
  if (report->disk_bytes > 0)
    PrintData(fmt::format("{:<24} {:>26.3f} GB/s, {:.3f} after", "the disk alone", report->disk_bytes * 1e-9,
                          report->disk_bytes_after * 1e-9));
  if (report->to_disk.seconds > 0) PrintRate("states to shards", report->to_disk, *report);
  return kExitComplete;
}

void AddExtract(CLI::App& bench, CommandOutcome& outcome) {
  CLI::App* command = bench.add_subcommand("extract", "Measure the extraction engine on random tokens");
  auto request = std::make_shared<ExtractBenchRequest>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("MODEL", request->options.model_folder, "The model folder")->required();
  command->add_option("--device", request->options.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--layers", request->options.layers, "Captured x_k, ascending; eagle3's where left out")
      ->delimiter(',');
  command->add_option("--threads", request->options.threads, "Threads of loading, and of the CPU engine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--seconds", request->seconds, "Of each measurement of the engine")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--disk-seconds", request->disk_seconds, "Of the one with shards; 0 for the same")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--product-seconds", request->product_seconds, "Of each measurement of products, GPUs only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--mean-tokens", request->mean_tokens, "Of a sample, nearly")
      ->check(CLI::Range(kShortestBenchSample, kLongestBenchSample))
      ->capture_default_str();
  command->add_option("--max-tokens", request->max_tokens, "Of a sample")
      ->check(CLI::Range(kShortestBenchSample, kLongestBenchSample))
      ->capture_default_str();
  command->add_option("--batch-tokens", request->batch_tokens, "Token budget of a batch; 0 for auto")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--block-tokens", request->block_tokens, "Token budget of a block; 0 for auto")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--weights", request->options.weights, "auto, resident, sharded or streamed")
      ->check(CLI::IsMember({"auto", "resident", "sharded", "streamed"}))
      ->capture_default_str();
  command
      ->add_option("--memory", request->options.memory_bytes,
                   "Of the host for weights and states, e.g. 8GiB; no limit without it")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  command->add_option("--work", request->work_folder, "Also write shards there; each is deleted once it is published");
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([request, as_json, &outcome] { outcome.exit_status = Measure(*request, *as_json); });
}
#endif

}  // namespace

void AddBenchCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine, without a run");
  bench->require_subcommand(1);
  AddCheckpoint(*bench, outcome);
#ifdef DRAFTMILL_WITH_TORCH
  AddExtract(*bench, outcome);
#endif
}

}  // namespace draftmill
