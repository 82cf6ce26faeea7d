// Runs ingest and keeps in the state database what it found: sources, conversations, chunks, refused rows.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "pipeline/run/run_monitor.h"
#include "stages/ingest/ingest.h"
#include "state/file_system.h"
#include "state/store.h"

namespace draftmill {

/// What the step works with; all of it outlives the step.
struct IngestStep {
  FileSystem& files;
  const std::string& work_folder;
  StateWriter& state;
  RunMonitor& monitor;
  std::function<bool()> should_stop;
  std::function<Status()> wait_for_space;  ///< called before more of the disk is used
};

/// Ingests from the start and returns when all of it is durable in files and database. What earlier chunks led to stays
/// where a chunk's content comes out the same, else it is dropped. The new files are made beside the old ones, in
/// `ingested.partial`, and take their place at the end: where ingest fails (a source turns out to be cut), what was
/// ingested before stands.
Result<IngestSummary> RunIngest(const IngestOptions& options, const IngestStep& step);

/// Puts what stands in ingested/ into the database: sources, conversations, chunks, refused rows. `summary` is what
/// ingested/index.json says, and may know more of the sources. Used where ingest replaced files, and by `state rebuild`.
Status RecordIngested(FileSystem& files, const std::string& work_folder, const IngestSummary& summary,
                      StateWriter& state);

}  // namespace draftmill
