// The self-check of a finished run, from its published shards: a fact of the manifest.
//
// A few samples of a few shards, spread evenly, are read back: mean norms of each kept layer, and how often the head of
// the model agrees with the text as stored and in wrong readings (stages/extract/self_check.h). What is read follows
// from the shards alone, so the figures are the same however the run went.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/extractor.h"
#include "state/file_system.h"

namespace draftmill {

/// The member of the manifest's facts.
inline constexpr const char* kSelfCheckFact = "self_check";

/// `shards`: paths of all published shards relative to the work folder, in the order of the manifest.
Result<json::Value> CheckPublishedStates(FileSystem& files, const std::string& work_folder,
                                         const std::vector<std::string>& shards, const std::string& model_folder,
                                         const ModelDescription& model);

/// What people should know about these facts, or empty: norms out of band, a right reading that does not beat the
/// others.
std::vector<std::string> SelfCheckWarnings(const json::Value& facts);

}  // namespace draftmill
