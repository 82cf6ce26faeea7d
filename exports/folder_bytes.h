// The size of a folder.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Bytes of all files below the folder, except those entries of the folder itself that are named in `skipped`. Reads names
/// and sizes alone. Errors: those of the file system.
Result<std::int64_t> BytesOfFolder(FileSystem& files, const std::string& folder,
                                   const std::set<std::string>& skipped = {});

}  // namespace draftmill
