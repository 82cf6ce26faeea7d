// draftmill export TARGET FORMAT [--output DIR] [--select TERM]... [--threads N]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exports/export_run.h"
#include "pipeline/progress/progress.h"
#include "pipeline/progress/stop_signal.h"
#include "stages/tokenize/tokenizer.h"
#include "state/file_system.h"
#include "tools/command.h"

namespace draftmill {
namespace {

struct ExportOptions : TargetOptions {
  std::string format;
  std::string output;
  std::vector<std::string> select;
  int threads = 0;
};

/// What tokens stand for, where the format writes text and the model's folder is there.
std::function<std::string(std::int32_t)> TokenBytesFor(const ExportOptions& options) {
  if (options.format != "jsonl") return {};
  const auto config = LoadTarget(RealFileSystem(), options.target, options.overrides());
  if (!config.ok()) return {};
  auto tokenizer = Tokenizer::LoadFolder(config->section("model").Text("path"));
  if (!tokenizer.ok()) return {};
  const std::shared_ptr<const Tokenizer> shared = std::move(tokenizer).value();
  return [shared](std::int32_t id) { return shared->TokenBytes(id); };
}

int Export(const ExportOptions& options) {
  const auto work_folder = WorkFolderOfTarget(RealFileSystem(), options.target, options.overrides());
  if (!work_folder.ok()) return ReportFailure(work_folder.status());
  auto selection = ParseSelection(options.select);
  if (!selection.ok()) return ReportFailure(selection.status());
  OutliveReaders();
  const StopSignal signals;
  const auto progress = MakeProgress(STDERR_FILENO, RealClock());
  const ExportRequest request{
      .work_folder = *work_folder,
      .format = options.format,
      .output = options.output.empty() ? JoinPath(JoinPath(*work_folder, "exports"), options.format) : options.output,
      .selection = std::move(selection).value(),
      .threads =
          options.threads > 0 ? options.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
      .token_bytes = TokenBytesFor(options),
      .should_stop = StopSignal::Requested};
  const auto report = RunExport(RealFileSystem(), request, *progress);
  if (report.ok()) return PrintFacts(ExportReportJson(*report), options.json);
  const int status = ReportFailure(report.status());
  return report.status().code() == StatusCode::kUnsupported ? static_cast<int>(kExitNotStarted) : status;
}

}  // namespace

void AddExportCommand(CLI::App& app, CommandOutcome& outcome) {
  CLI::App* command = app.add_subcommand("export", "Write a finished run in the form that a trainer reads");
  auto options = std::make_shared<ExportOptions>();
  AddTargetOptions(*command, *options);
  command->add_option("FORMAT", options->format, "specforge, speculators, modelopt, torchspec or jsonl")->required();
  command->add_option("--output", options->output, "The folder to make (default: exports/FORMAT in the work folder)")
      ->type_name("DIR");
  command
      ->add_option("--select", options->select,
                   "source=PATH, samples=FIRST-LAST, eval=FRACTION, split=train|eval; may be given several times")
      ->type_name("TERM")
      ->allow_extra_args(false);
  command->add_option("--threads", options->threads, "Workers (default: one a processor)")->check(CLI::Range(1, 1024));
  command->callback([options, &outcome] { outcome.exit_status = Export(*options); });
}

}  // namespace draftmill
