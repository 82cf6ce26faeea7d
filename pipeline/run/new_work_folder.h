// Whether a folder may become the work folder of a run.
#pragma once

#include "base/status.h"
#include "pipeline/config/config.h"
#include "state/file_system.h"

namespace draftmill {

/// Fails (kConflict, kInvalidConfig) where the configuration's work folder is no folder or the model's own, and where it
/// belongs to no run yet but holds files of a name that a run writes: they would be taken for its own, replaced or removed.
/// Success where it is not there yet. Reads at most a pipeline.yaml.
Status CheckThatWorkFolderMayBeUsed(FileSystem& files, const Config& config);

}  // namespace draftmill
