#include "stages/ingest/row_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace draftmill {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The strings of a JSON text that passes by: brackets and commas in them structure nothing.
class JsonStrings {
 public:
  /// Whether the character belongs to a string, its quotes included.
  bool Takes(char c) {
    if (!is_inside_) return is_inside_ = c == '"';
    const bool is_end = c == '"' && !is_escaped_;
    is_escaped_ = c == '\\' && !is_escaped_;
    is_inside_ = !is_end;
    return true;
  }

 private:
  bool is_inside_ = false;
  bool is_escaped_ = false;
};

}  // namespace

RowReader::RowReader(std::unique_ptr<ByteStream> stream, FileLayout layout, std::int64_t max_row_bytes)
    : stream_(std::move(stream)), layout_(layout), max_row_bytes_(max_row_bytes) {}

/// Reads on; false where the file has ended. What stands before the row goes, and what a too long row holds.
Result<bool> RowReader::More() {
  if (ended_) return false;
  too_long_ = too_long_ || static_cast<std::int64_t>(at_ - row_begin_) > max_row_bytes_;
  const std::size_t done = too_long_ ? at_ : row_begin_;
  buffer_.erase(0, done);
  buffer_offset_ += static_cast<std::int64_t>(done);
  at_ -= done;
  row_begin_ = 0;

  const std::size_t held = buffer_.size();
  buffer_.resize(held + kReadBytes);
  Result<std::size_t> bytes = stream_->Read(std::as_writable_bytes(std::span<char>(buffer_.data() + held, kReadBytes)));
  buffer_.resize(held + (bytes.ok() ? *bytes : 0));
  if (!bytes.ok()) return bytes.status();
  ended_ = *bytes == 0;
  return !ended_;
}

/// Moves to the next byte that is no white space; false at the end of the file.
Result<bool> RowReader::SkipSpace() {
  while (true) {
    for (; at_ < buffer_.size() && IsSpace(buffer_[at_]); ++at_) {
      if (buffer_[at_] == '\n') ++line_;
    }
    if (at_ < buffer_.size()) return true;
    row_begin_ = at_;
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, More());
    if (!more) return false;
  }
}

Status RowReader::SkipByteOrderMark() {
  bool more = true;
  while (more && buffer_.size() < kByteOrderMark.size()) {
    DRAFTMILL_ASSIGN_OR_RETURN(more, More());
  }
  if (buffer_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  return OkStatus();
}

void RowReader::BeginRow() {
  row_begin_ = at_;
  row_offset_ = buffer_offset_ + static_cast<std::int64_t>(at_);
  row_line_ = line_;
  too_long_ = false;
}

/// The row from row_begin_ to at_. Whether it is too long must not depend on how the bytes came, so white space at its
/// end counts, though it is no part of the text.
void RowReader::TakeRow(RawRow& row) {
  std::size_t end = at_;
  while (end > row_begin_ && IsSpace(buffer_[end - 1])) --end;
  row.row = rows_++;
  row.line = row_line_;
  row.byte_offset = row_offset_;
  row.size_bytes = buffer_offset_ + static_cast<std::int64_t>(at_) - row_offset_;
  row.is_too_long = too_long_ || row.size_bytes > max_row_bytes_;
  row.text = std::string_view();
  if (!row.is_too_long) row.text = std::string_view(buffer_).substr(row_begin_, end - row_begin_);
  row.fault = std::string_view();
}

Result<bool> RowReader::Next(RawRow& row) {
  if (!started_) {
    started_ = true;
    DRAFTMILL_RETURN_IF_ERROR(SkipByteOrderMark());
  }
  return layout_ == FileLayout::kLines ? NextLine(row) : NextValue(row);
}

/// Moves to the next newline, or to the end of the file.
Status RowReader::ScanToNewline() {
  while (true) {
    const void* found = std::memchr(buffer_.data() + at_, '\n', buffer_.size() - at_);
    if (found != nullptr) {
      at_ = static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
      return OkStatus();
    }
    at_ = buffer_.size();
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, More());
    if (!more) return OkStatus();
  }
}

Result<bool> RowReader::NextLine(RawRow& row) {
  while (true) {
    BeginRow();
    if (line_ == 1 && rows_ == 0) row_offset_ = 0;  // a byte order mark belongs to the first line
    DRAFTMILL_RETURN_IF_ERROR(ScanToNewline());
    const bool has_newline = IsAt('\n');
    const bool has_row = too_long_ || static_cast<std::int64_t>(at_ - row_begin_) > max_row_bytes_ ||
                         !std::all_of(buffer_.begin() + static_cast<std::ptrdiff_t>(row_begin_),
                                      buffer_.begin() + static_cast<std::ptrdiff_t>(at_), IsSpace);
    if (has_row) TakeRow(row);
    if (has_newline) {
      ++at_;
      ++line_;
    }
    if (has_row || !has_newline) return has_row;
  }
}

Result<bool> RowReader::NextValue(RawRow& row) {
  if (place_ == Place::kStart) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, SkipSpace());
    if (!more) return false;
    place_ = Place::kBetweenObjects;
    if (IsAt('[')) {
      ++at_;
      DRAFTMILL_ASSIGN_OR_RETURN(const bool has_next, SkipSpace());
      const bool is_empty = has_next && IsAt(']');
      if (is_empty) ++at_;
      place_ = is_empty ? Place::kAfterList : Place::kInList;
    }
  }
  switch (place_) {
    case Place::kInList: return NextElement(row);
    case Place::kAfterList: return RestAfterList(row);
    case Place::kBetweenObjects: return NextObject(row);
    case Place::kStart:
    case Place::kEnd: break;
  }
  return false;
}

Result<bool> RowReader::NextElement(RawRow& row) {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool more, SkipSpace());
  BeginRow();
  row_line_ = 0;
  if (!more) {
    place_ = Place::kEnd;
    TakeRow(row);
    row.fault = "the file ends before its list is closed: it was cut";
    return true;
  }
  DRAFTMILL_RETURN_IF_ERROR(ScanElement());
  TakeRow(row);
  if (IsAt(']')) place_ = Place::kAfterList;
  if (at_ < buffer_.size()) ++at_;
  return true;
}

Result<bool> RowReader::RestAfterList(RawRow& row) {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool more, SkipSpace());
  place_ = Place::kEnd;
  if (!more) return false;
  BeginRow();
  row_line_ = 0;
  TakeRow(row);
  row.fault = "text after the end of the file's list; it is not read";
  return true;
}

/// Moves to the ',' or ']' that ends an element of the file's list, or to the end of the file.
Status RowReader::ScanElement() {
  JsonStrings strings;
  std::int64_t depth = 0;
  while (true) {
    for (; at_ < buffer_.size(); ++at_) {
      const char c = buffer_[at_];
      if (strings.Takes(c)) continue;
      if (depth == 0 && (c == ',' || c == ']')) return OkStatus();
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && depth > 0) --depth;
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, More());
    if (!more) return OkStatus();
  }
}

Result<bool> RowReader::NextObject(RawRow& row) {
  DRAFTMILL_ASSIGN_OR_RETURN(const bool more, SkipSpace());
  if (!more) return false;
  BeginRow();
  if (IsAt('{')) {
    DRAFTMILL_RETURN_IF_ERROR(ScanObject());
    // An object on one line: a file of lines in spite of its name. Read as such, one broken line costs that line alone.
    if (rows_ == 0 && line_ == row_line_) layout_ = FileLayout::kLines;
  } else {
    DRAFTMILL_RETURN_IF_ERROR(ScanToNewline());
  }
  TakeRow(row);
  return true;
}

/// Moves behind the '}' that closes the object at at_, or to the end of the file.
Status RowReader::ScanObject() {
  JsonStrings strings;
  std::int64_t depth = 0;
  while (true) {
    for (; at_ < buffer_.size(); ++at_) {
      const char c = buffer_[at_];
      if (c == '\n') ++line_;
      if (strings.Takes(c)) continue;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) {
        ++at_;
        return OkStatus();
      }
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, More());
    if (!more) return OkStatus();
  }
}

}  // namespace draftmill
