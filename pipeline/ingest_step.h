// Runs ingest and keeps in the state database what it found: sources, conversations, chunks, refused rows.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "pipeline/run_monitor.h"
#include "stages/ingest/ingest.h"
#include "state/file_system.h"
#include "state/store.h"

namespace draftmill {

/// Ingests from the start and returns when all of it is durable in files and database. What earlier chunks led to stays
/// where a chunk's content comes out the same, else it is dropped.
Result<IngestSummary> RunIngest(const IngestOptions& options, FileSystem& files, const std::string& work_folder,
                                StateWriter& state, RunMonitor& monitor, const std::function<bool()>& should_stop);

}  // namespace draftmill
