// Cuts the unpacked bytes of a source file into rows, in bounded memory, each with its line and byte offset.
//
// Two layouts: lines (.jsonl: every line that is not blank is a row; CR before LF is white space) and values (.json:
// the elements of one list, or one or several objects one after the other). A byte order mark at the start is passed
// over. Only the cuts are made here; whether a row is JSON is for the parser to say, so one broken row costs that row.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"
#include "stages/ingest/byte_stream.h"

namespace draftmill {

enum class FileLayout : std::uint8_t { kLines, kValues };

/// One row as it stands in the file.
struct RawRow {
  std::string_view text;         ///< valid until the next call of Next; empty where the row is too long
  std::int64_t row = 0;          ///< 0-based
  std::int64_t line = 0;         ///< 1-based; 0 in a file that is one list
  std::int64_t byte_offset = 0;  ///< in the unpacked file: of its line where rows are lines, else of its first byte
  std::int64_t size_bytes = 0;   ///< with the white space up to the end of its line or the next comma
  bool is_too_long = false;      ///< longer than max_row_bytes: passed over, not held
  std::string_view fault;        ///< set where the file's own structure is broken here, e.g. a list that is not closed
};

class RowReader {
 public:
  RowReader(std::unique_ptr<ByteStream> stream, FileLayout layout, std::int64_t max_row_bytes);

  /// The next row into `row`; false at the end of the file.
  Result<bool> Next(RawRow& row);

  std::int64_t packed_bytes() const { return stream_->packed_bytes(); }
  /// XXH3-128 of the file's own bytes, whether all rows were read or not; no row may be read after it.
  Result<Hash128> HashWholeFile() { return stream_->HashWholeFile(); }

 private:
  /// Where in a file of values the reader stands.
  enum class Place : std::uint8_t { kStart, kInList, kAfterList, kBetweenObjects, kEnd };

  Result<bool> More();
  Result<bool> SkipSpace();
  Status SkipByteOrderMark();
  Result<bool> NextLine(RawRow& row);
  Result<bool> NextValue(RawRow& row);
  Result<bool> NextElement(RawRow& row);
  Result<bool> NextObject(RawRow& row);
  Result<bool> RestAfterList(RawRow& row);
  Status ScanToNewline();
  Status ScanElement();
  Status ScanObject();
  void BeginRow();
  void TakeRow(RawRow& row);
  bool IsAt(char c) const { return at_ < buffer_.size() && buffer_[at_] == c; }

  std::unique_ptr<ByteStream> stream_;
  FileLayout layout_;
  std::int64_t max_row_bytes_;
  std::string buffer_;  ///< unpacked bytes from buffer_offset_ on
  std::int64_t buffer_offset_ = 0;
  std::size_t at_ = 0;         ///< index in buffer_ of the next byte to look at
  std::size_t row_begin_ = 0;  ///< index in buffer_ of the row's first byte that is still held
  std::int64_t row_offset_ = 0;
  std::int64_t row_line_ = 1;
  std::int64_t line_ = 1;
  std::int64_t rows_ = 0;
  bool too_long_ = false;
  bool ended_ = false;
  bool started_ = false;
  Place place_ = Place::kStart;
};

}  // namespace draftmill
