// A batch of rows of one source file on its way through a parse worker: raw text in, canonical text and refusals out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"
#include "stages/ingest/conversation.h"
#include "stages/ingest/row_reader.h"

namespace draftmill {

/// Part of a batch's text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t size = 0;
};

/// One row of a batch, before and after its worker.
struct BatchRow {
  RowPlace place;
  std::int64_t size_bytes = 0;
  bool is_too_long = false;
  std::string_view fault;  ///< of the file's structure; a literal
  TextRange raw;           ///< in RowBatch::raw_text

  RowForm form = RowForm::kAuto;
  TextRange conversation;  ///< in RowBatch::conversations, where reason is empty
  Hash128 content_hash;
  std::string reason;  ///< why it was refused; empty where it was not
  std::string message;
};

struct RowBatch {
  std::size_t file = 0;           ///< index into the run's list of source files
  RowForm form = RowForm::kAuto;  ///< as the source says
  std::string raw_text;
  std::string conversations;
  std::vector<BatchRow> rows;
  std::int64_t packed_bytes = 0;  ///< of the file read so far
  /// How the reading of the file stood after these rows: a failure ends the run unless these rows are not wanted.
  Status read_status;
  bool ends_file = false;
  Hash128 file_hash;  ///< where ends_file

  std::string_view RawText(const BatchRow& row) const {
    return std::string_view(raw_text).substr(row.raw.begin, row.raw.size);
  }
  std::string_view Conversation(const BatchRow& row) const {
    return std::string_view(conversations).substr(row.conversation.begin, row.conversation.size);
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(raw_text.size() + conversations.size()); }
};

/// The JSON of a row as the reader cut it, or why it is refused: kInvalidInput, with the fixed word in `refusal`.
Result<json::Value> ParseRawRow(const RawRow& row, std::int64_t max_row_bytes, RowRefusal& refusal);

/// Parses every row of the batch and brings it into canonical form, or notes why not. A pure function of the rows.
void ParseBatch(RowBatch& batch, bool normalize, std::int64_t max_row_bytes);

}  // namespace draftmill
