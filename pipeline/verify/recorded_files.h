// Small published files whose digests stand among the facts of the state database, so that `verify` covers every byte.
// Corpus chunks and shards have theirs in their rows.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "state/file_system.h"
#include "state/store.h"

namespace draftmill {

/// The fact is named by the file's path in the work folder: "digest.vocab/t2d.npy". Empty: there is no such file.
inline constexpr std::string_view kFactDigestPrefix = "digest.";

/// Takes down the digest of a file as it stands, or that it does not. The file must be durable.
Status RecordFile(FileSystem& files, const std::string& work_folder, const std::string& path, StateWriter& state);

}  // namespace draftmill
