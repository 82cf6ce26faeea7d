// Measures a disk as the shard writer uses it: large writes at given places of a file whose space was reserved, each
// synced.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(double bytes_per_second, MeasureDisk(RealFileSystem(), folder, {}));
//
// Writes a file in the folder and removes it. Errors are the file system's.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct DiskBenchRequest {
  std::int64_t write_bytes = std::int64_t{1} << 30;  ///< between two syncs; a batch of 32,768 tokens of an 8B model
  std::int64_t file_bytes = std::int64_t{4} << 30;
  double seconds = 8;  ///< whole files are written until this is over
};

/// Bytes per second.
Result<double> MeasureDisk(FileSystem& files, const std::string& folder, const DiskBenchRequest& request);

}  // namespace draftmill
