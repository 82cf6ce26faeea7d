// Judges whether too many rows went to quarantine (limits.max_bad_fraction).
//
// The measure is the number of bad rows against all rows that were read, which is known when ingest has ended; so the
// verdict depends on the rows alone, not on timing. It is passed at chunk ends in plan order from 1,000 rows on, and at
// the end. One thread at a time.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace draftmill {

class BadRowJudge {
 public:
  /// `rows` read by ingest, `rejected` of them.
  BadRowJudge(std::int64_t rows, std::int64_t rejected, double max_fraction)
      : rows_(rows), bad_(rejected), max_fraction_(max_fraction) {}

  /// Counts rows that a later stage refused.
  void Add(std::int64_t bad_rows) { bad_ += bad_rows; }
  /// After a chunk: kInvalidInput where too many of at least 1,000 rows are bad.
  Status JudgeChunkEnd() const { return rows_ < kMinimumRows ? OkStatus() : Judge(); }
  /// After the last chunk.
  Status JudgeEnd() const { return Judge(); }

 private:
  static constexpr std::int64_t kMinimumRows = 1000;

  Status Judge() const;

  std::int64_t rows_;
  std::int64_t bad_;
  double max_fraction_;
};

}  // namespace draftmill
