// draftmill why TARGET STAGE|SAMPLE
#include <CLI/CLI.hpp>
#include <memory>

#include "pipeline/reports/facts_text.h"
#include "pipeline/reports/sample_name.h"
#include "pipeline/reports/why_report.h"
#include "pipeline/run/run_inputs.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct WhyOptions : TargetOptions {
  std::string item;
};

Result<json::Value> Explain(const WhyOptions& options) {
  DRAFTMILL_ASSIGN_OR_RETURN(const Config config, LoadTarget(RealFileSystem(), options.target, options.overrides()));
  DRAFTMILL_ASSIGN_OR_RETURN(const FingerprintsByStage current, CurrentFingerprints(config));
  const auto sample = ParseSampleName(options.item);
  if (sample) return WhySample(RealFileSystem(), config.work_folder(), *sample, current);
  return WhyStage(RealFileSystem(), config.work_folder(), options.item, current);
}

/// Whatever keeps it from an answer would keep a run from its start.
int Why(const WhyOptions& options) {
  const Result<json::Value> facts = Explain(options);
  if (facts.ok()) return PrintFacts(facts, options.json);
  static_cast<void>(ReportFailure(facts.status()));
  return ExitStatusBeforeStart(facts.status());
}

}  // namespace

void AddWhyCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command =
      app.add_subcommand("why", "Say why a stage would be done again, or why a sample stands where it stands");
  auto options = std::make_shared<WhyOptions>();
  AddTargetOptions(*command, *options);
  command->add_option("ITEM", options->item, "A stage, or a sample as ID or ID/VARIANT")->required();
  command->callback([options, &outcome] { outcome.exit_status = Why(*options); });
}

}  // namespace draftmill
