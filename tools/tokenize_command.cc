// draftmill tokenize (--model DIR | --tokenizer FILE) [--template FILE] [--set NAME=JSON]... [--param NAME=VALUE]...
// FILE
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "pipeline/run/tokenize_rows.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct TokenizeCommandOptions {
  TokenizeStage::Inputs inputs;
  TokenizeSettings settings;
  std::string file;
};

int Tokenize(const TokenizeCommandOptions& options) {
  const auto refuse = [](const Status& status) {
    ReportFailure(status);
    return ExitStatusBeforeStart(status);
  };
  const auto stage_options = ReadTokenizeOptions(options.settings);
  if (!stage_options.ok()) return refuse(stage_options.status());
  const auto stage = TokenizeStage::Create(*stage_options, options.inputs);
  if (!stage.ok()) return refuse(stage.status());
  bool has_printed = false;
  const auto counts = TokenizeRows(RealFileSystem(), **stage, options.file, [&](const json::Value& line) {
    has_printed = true;
    PrintData(json::Write(line));
    return OutputStatus();
  });
  if (!counts.ok()) return has_printed ? ReportFailure(counts.status()) : refuse(counts.status());
  return counts->refused == 0 ? kExitComplete : kExitQuarantined;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Print text, ids, loss mask and byte offsets of each row of a file, as JSON; needs no run");
  auto options = std::make_shared<TokenizeCommandOptions>();
  CLI::Option_group* tokenizer = command->add_option_group("tokenizer");
  tokenizer->add_option("--model", options->inputs.model_folder, "A model folder")->type_name("DIR");
  tokenizer->add_option("--tokenizer", options->inputs.tokenizer_file, "A tokenizer.json or tiktoken.model alone")
      ->type_name("FILE");
  tokenizer->require_option(1);
  command->add_option("--template", options->settings.template_file, "A chat template instead of the model's own")
      ->type_name("FILE");
  command->add_option("--set", options->settings.variables, "A variable of the chat template; may be given again")
      ->type_name("NAME=JSON")
      ->allow_extra_args(false);
  command
      ->add_option("--param", options->settings.parameters,
                   "A parameter of the stage `tokenize` (docs/configuration.md); may be given again")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("FILE", options->file, "Rows: .json, .jsonl or .ndjson, also .gz and .zst")->required();
  command->callback([options, &outcome] { outcome.exit_status = Tokenize(*options); });
}

}  // namespace draftmill
