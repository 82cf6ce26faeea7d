// draftmill inspect TARGET [SHARD|SAMPLE]
#include <CLI/CLI.hpp>
#include <memory>

#include "pipeline/reports/inspect_report.h"
#include "pipeline/reports/sample_name.h"
#include "stages/tokenize/tokenizer.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct InspectOptions : TargetOptions {
  std::string item;
  bool ids = false;
};

/// The model's tokenizer, or nothing (with a word on standard error) where it cannot be loaded: the rest is shown all
/// the same.
std::shared_ptr<const Tokenizer> LoadTokenizer(const InspectOptions& options) {
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) {
    ReportFailure(config.status().WithContext("the text is not shown"));
    return nullptr;
  }
  auto tokenizer = Tokenizer::LoadFolder(config->section("model").Text("path"));
  if (!tokenizer.ok()) {
    ReportFailure(tokenizer.status().WithContext("the text is not shown"));
    return nullptr;
  }
  return std::move(tokenizer).value();
}

int ShowSample(const InspectOptions& options, const std::string& work_folder, const SampleName& name) {
  const std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options);
  TokenBytesFunction token_bytes;
  if (tokenizer != nullptr) token_bytes = [&](std::int32_t id) { return tokenizer->TokenBytes(id); };
  const auto samples = InspectSample(RealFileSystem(), work_folder, name, token_bytes);
  if (!samples.ok()) return ReportLookFailure(samples.status());
  json::Array list;
  for (const InspectedSample& sample : *samples) {
    if (options.json) {
      list.push_back(SampleAsJson(sample));
    } else {
      PrintData(SampleAsText(sample, {.colours = StandardOutputShowsColours(), .ids = options.ids}));
    }
  }
  if (options.json) PrintJson(json::Value(std::move(list)));
  return kExitComplete;
}

int Inspect(const InspectOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  if (options.item.empty()) return PrintFacts(InspectWorkFolder(RealFileSystem(), *work_folder), options.json);
  if (const auto name = ParseSampleName(options.item)) return ShowSample(options, *work_folder, *name);
  if (const auto name = ParseShardName(options.item))
    return PrintFacts(InspectShard(RealFileSystem(), *work_folder, *name), options.json);
  return ReportFailure(
      InvalidConfig("`" + options.item + "` names neither a sample (ID or ID/VARIANT) nor a shard (c000012-s003)"));
}

}  // namespace

void AddInspectCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("inspect", "Look into a work folder, one of its shards, or a sample");
  auto options = std::make_shared<InspectOptions>();
  AddTargetOptions(*command, *options);
  command->add_option("ITEM", options->item, "A sample as ID or ID/VARIANT, or a shard as c000012-s003 or by its path");
  command->add_flag("--ids", options->ids, "Of a sample: one line per token with its id");
  command->callback([options, &outcome] { outcome.exit_status = Inspect(*options); });
}

}  // namespace draftmill
