#include "pipeline/run/run.h"

#include <fmt/format.h>
#include <tbb/global_control.h>

#include <algorithm>

#include "pipeline/exit_status.h"
#include "pipeline/run/pipeline_run.h"
#include "pipeline/run/run_report.h"

namespace draftmill {

RunReport PipelineRun::Execute() {
  const StopSignal signals;
  Status status = Prepare();
  if (!status.ok()) return Report(status, /*was_started=*/false);
  // The whole program's threads: the graph, the engine's arena and ingest share them.
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                    static_cast<std::size_t>(std::max(2, inputs_.threads)));
  status = Work();
  monitor_->Finish();
  return Report(status, /*was_started=*/true);
}

RunReport PipelineRun::ReportOf(const Status& status) {
  return MakeReport({.status = status,
                     .work_folder = work_,
                     .did_work = did_work_,
                     .until_stage = request_.until_stage,
                     .seconds = static_cast<double>(clock_.MonotonicNs() - start_ns_) / 1e9,
                     .peaks = peaks_,
                     .memory = inputs_.memory},
                    files_);
}

RunReport PipelineRun::Report(const Status& status, bool was_started) {
  RunReport report;
  if (!was_started) {
    report.exit_status = ExitStatusBeforeStart(status);
    report.summary = "draftmill: " + status.message();
    // Said by SQLite or by a system call, it names no way out.
    if (status.code() == StatusCode::kDiskFull && status.message().find("Free ") == std::string::npos) {
      report.summary +=
          fmt::format(". Nothing was started. Free space on the disk of {}, then run the same command again", work_);
    }
    report.facts = json::Object{{"exit_status", report.exit_status}, {"error", status.ToString()}};
    return report;
  }
  report = ReportOf(status);
  if (!status.ok()) state_->AddEvent(EventLevel::kError, status.ToString());
  state_->FinishRun(report.exit_status, json::Write(report.facts));
  const Status closed = state_->Close();
  // A reader that looks at this moment keeps the database in its other, equally whole, form.
  if (!closed.ok() && closed.code() != StatusCode::kConflict && status.ok()) return ReportOf(closed);
  return report;
}

RunReport RunPipeline(const Config& config, const RunRequest& request, ProgressSink& progress,
                      const RunEnvironment& environment) {
  return PipelineRun(config, request, progress, environment).Execute();
}

}  // namespace draftmill
