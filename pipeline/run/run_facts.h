// What run.json tells of a run, for where state.db is lost.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "stages/extract/plan.h"
#include "state/file_system.h"
#include "state/fingerprint.h"

namespace draftmill {

struct RunFacts {
  std::map<std::string, Fingerprint> fingerprints;  ///< by stage
  PlanParameters plan;                              ///< batch_tokens and block_tokens; 0 where it does not say
};

/// Reads the work folder's run.json. kNotFound where there is none, kCorrupt where it is damaged.
Result<RunFacts> ReadRunFacts(FileSystem& files, const std::string& work_folder);

}  // namespace draftmill
