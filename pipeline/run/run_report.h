// What a run says at its start and at its end, from the database's totals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/flow/chunk_flow.h"
#include "pipeline/run/bad_rows.h"
#include "pipeline/run/run.h"
#include "pipeline/run/run_inputs.h"
#include "state/file_system.h"
#include "state/state_records.h"

namespace draftmill {

/// "resuming tidy-heron: 3 of 9 chunks tokenized, 7 of 24 shards published; the last run did not end cleanly, ...".
std::string ResumeLine(const std::string& run_name, const std::vector<ChunkRecord>& chunks, bool after_unclean_end);

/// The judge over all rows of all sources, with what is known to be bad already.
BadRowJudge MakeBadRowJudge(const std::vector<SourceRecord>& sources, const std::vector<ChunkRecord>& chunks,
                            double max_bad_fraction);

struct ReportInput {
  Status status;  ///< how the run ended
  std::string work_folder;
  bool did_work = false;
  std::optional<std::string> until_stage;
  double seconds = 0;
  ChunkFlowPeaks peaks;
  MemoryShares memory;
};

/// The report, with the exit status that the run ends with: 3 where all is done but rows or samples are in quarantine.
RunReport MakeReport(const ReportInput& input, FileSystem& files);

}  // namespace draftmill
