// Puts any number of rows in order by a key of 24 bytes, in bounded memory: rows are spread over files by the leading
// bits of their keys, each file is then sorted alone, and one that is too large for the memory is spread further by the
// bits after it. Rows of equal key come in the order in which they were added.
//
//   SortedSpill spill(file_system, folder, memory_bytes, /*skip_bits=*/0);
//   DRAFTMILL_RETURN_IF_ERROR(spill.Add(row));   // any number of times
//   DRAFTMILL_RETURN_IF_ERROR(spill.Visit([&](const SpilledRow& row, bool repeats_key) { ... return OkStatus(); }));
//
// The files (zstd blocks with checksums, in this machine's byte order) lie in `folder`, are never published, and go as
// they are read. A spill that is left half-way leaves them to whoever removes the folder. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"
#include "formats/records.h"
#include "state/file_system.h"

namespace draftmill {

/// Compared byte by byte, as memcmp.
using SpillKey = std::array<std::uint8_t, 24>;

struct SpilledRow {
  SpillKey key{};
  Hash128 content_hash;
  RowPlace place;
  std::string_view text;  ///< the conversation as compact JSON; less than 4 GiB
};

class SortedSpill {
 public:
  /// Rows as a sorted file hands them on; `repeats_key` is true where the row before had the same key.
  using Visitor = std::function<Status(const SpilledRow& row, bool repeats_key)>;

  /// `skip_bits`: how many leading bits of all keys are known to be equal.
  SortedSpill(FileSystem& file_system, std::string folder, std::int64_t memory_bytes, int skip_bits);
  ~SortedSpill();
  SortedSpill(SortedSpill&&) noexcept;
  SortedSpill& operator=(SortedSpill&&) noexcept;

  Status Add(const SpilledRow& row);
  /// All rows in order; once, and nothing may be added after it.
  Status Visit(const Visitor& visit);

 private:
  class Level;
  std::unique_ptr<Level> level_;
};

}  // namespace draftmill
