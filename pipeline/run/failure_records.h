// From the failures that stages report to the rows of the table `failures`.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/records.h"
#include "state/state_records.h"

namespace draftmill {

/// `chunk` is -1 where the rows belong to none.
std::vector<FailureRecord> FailureRecords(const std::vector<Failure>& failures, std::int64_t chunk);

}  // namespace draftmill
