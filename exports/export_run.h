// One export from its forecast to its publication: `draftmill export`.
//
//   ExportRequest request{.work_folder = "work/demo", .format = "specforge", .output = "work/specforge"};
//   DRAFTMILL_ASSIGN_OR_RETURN(const ExportReport report, RunExport(RealFileSystem(), request, *progress));
//
// Everything is written into `OUTPUT.partial`, which becomes OUTPUT when all of it is durable: a trainer sees a whole export
// or none. Workers take a shard each; when all its samples are synced, a mark says so, and an export that was killed goes on
// with the shards that have none, to the same bytes. The folder of an unfinished export says in export.json what it is; one of
// another run, format or selection is not continued but refused. OUTPUT/export.json holds what the export is, what it
// assumed and how much it holds, OUTPUT/rows.jsonl a line a row with the sample it came from.
//
// Memory: some MiB a worker whatever the samples' length, one chunk's tokens. Errors: kConflict where OUTPUT holds something
// else, kDiskFull and kCancelled (give the same command again), kUnsupported and kInvalidConfig before anything is written,
// kCorrupt where the source is damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "exports/export_format.h"
#include "exports/selection.h"
#include "pipeline/progress/progress.h"
#include "state/file_system.h"

namespace draftmill {

struct ExportRequest {
  std::string work_folder;
  std::string format;
  std::string output;  ///< the folder; made, with those above it
  Selection selection;
  int threads = 1;
  std::function<std::string(std::int32_t)> token_bytes{};  ///< for formats that write text; may be empty
  std::function<bool()> should_stop{};                     ///< asked between samples
};

struct ExportReport {
  std::string format;
  std::string output;
  bool was_there = false;  ///< nothing was left to do
  ExportCounts counts;
  std::vector<std::string> advice;
};

Result<ExportReport> RunExport(FileSystem& file_system, const ExportRequest& request, ProgressSink& progress);

/// The report for `--json` and, as text, for people.
json::Value ExportReportJson(const ExportReport& report);

}  // namespace draftmill
