#include "pipeline/run/failure_records.h"

namespace draftmill {

std::vector<FailureRecord> FailureRecords(const std::vector<Failure>& failures, std::int64_t chunk) {
  std::vector<FailureRecord> records;
  records.reserve(failures.size());
  for (const Failure& failure : failures) {
    records.push_back({.stage = failure.stage,
                       .reason = failure.reason,
                       .message = failure.message,
                       .source = failure.place.source,
                       .row = failure.place.row,
                       .line = failure.place.line,
                       .byte_offset = failure.place.byte_offset,
                       .sample_id = failure.key.sample_id,
                       .variant = failure.key.variant,
                       .chunk = chunk});
  }
  return records;
}

}  // namespace draftmill
