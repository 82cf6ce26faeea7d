// Why a stage would be done again, or why a sample stands where it stands: for `draftmill why`.
//
// Compares the parts of the fingerprint that a stage was made under with the current ones, which the caller computes
// (CurrentFingerprints). Read-only, safe from any thread.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "pipeline/reports/sample_name.h"
#include "state/file_system.h"
#include "state/fingerprint.h"

namespace draftmill {

/// Current fingerprints by the stage's name.
using FingerprintsByStage = std::map<std::string, Fingerprint>;

/// {"stage", "state", "why", "changes": [{"part", "old", "new"}]}. A stage that has no row yet is pending; a name that
/// is no stage's is kInvalidConfig and names the stages.
Result<json::Value> WhyStage(FileSystem& files, const std::string& work_folder, const std::string& stage,
                             const FingerprintsByStage& current);

/// Where the samples of the name stand, what made them fail, and which stages that they passed were changed since.
Result<json::Value> WhySample(FileSystem& files, const std::string& work_folder, const SampleName& name,
                              const FingerprintsByStage& current);

}  // namespace draftmill
