// The rows and samples that did not go on, for `draftmill quarantine`: counted by reason, one by one, or exported with
// the rows themselves, so that they can be repaired and ingested again.
//
// Read-only; memory is bounded by one page of failures and one chunk of rows. Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

/// Which failures are asked for.
struct QuarantineQuery {
  std::string stage = {};    ///< empty: any
  std::string reason = {};   ///< empty: any
  std::int64_t after = 0;    ///< the number of the last failure that was seen
  std::int64_t limit = 100;  ///< of ListQuarantine
};

/// {"reasons": [...], "failures": [...], "more": whether there are further ones}.
Result<json::Value> ListQuarantine(FileSystem& files, const std::string& work_folder, const QuarantineQuery& query);

/// One failure by its number, with the row as it stood in its source (`raw`) or as it was ingested (`conversation`),
/// where the work folder still holds it. kNotFound where there is no such failure.
Result<json::Value> ShowFailure(FileSystem& files, const std::string& work_folder, std::int64_t failure);

/// Hands every failure to `emit`, with its row as ShowFailure does: first what ingest refused, in the order of the
/// sources.
Status ExportQuarantine(FileSystem& files, const std::string& work_folder, const QuarantineQuery& query,
                        const std::function<Status(const json::Value&)>& emit);

/// The row alone of an exported failure, in one line: as it stood in its source, else as it was ingested. Mended, such lines
/// are a source. Nothing where the work folder does not hold the row.
std::optional<std::string> RowOfFailure(const json::Value& exported);

}  // namespace draftmill
