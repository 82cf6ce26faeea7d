// ingested/index.json: what an ingest found and made. Written last, so it stands only beside a whole set of chunks;
// from it and the chunks the state database can be rebuilt. ReadIngestSummary is declared in stages/ingest/ingest.h.
#pragma once

#include <string>

#include "base/status.h"
#include "stages/ingest/ingest.h"
#include "state/file_system.h"

namespace draftmill {

/// `work_folder`/ingested/index.json
std::string IngestSummaryPath(const std::string& work_folder);

/// Publishes it durably.
Status WriteIngestSummary(FileSystem& file_system, const std::string& work_folder, const IngestSummary& summary);

}  // namespace draftmill
