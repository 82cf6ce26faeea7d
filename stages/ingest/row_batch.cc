#include "stages/ingest/row_batch.h"

#include <utility>

#include "base/json.h"

namespace draftmill {
namespace {

/// Half of what the parser allows by itself: an ingested row is read back from inside a larger object.
constexpr int kMaxRowDepth = 128;

void Refuse(BatchRow& row, std::string_view reason, std::string message) {
  row.reason = reason;
  row.message = std::move(message);
}

void ParseRow(RowBatch& batch, BatchRow& row, bool normalize, std::int64_t max_row_bytes) {
  if (!row.fault.empty()) return Refuse(row, "broken_json", std::string(row.fault));
  if (row.is_too_long) {
    return Refuse(row, "row_too_long",
                  "the row has " + std::to_string(row.size_bytes) + " bytes, more than ingest.max_row_bytes (" +
                      std::to_string(max_row_bytes) + ")");
  }
  json::ParseFailure failure;
  Result<json::Value> value = json::Parse(batch.RawText(row), {.max_depth = kMaxRowDepth}, &failure);
  if (!value.ok()) return Refuse(row, ReasonOf(failure.fault), value.status().message() + " of the row");
  row.form = batch.form == RowForm::kAuto ? RecognizedForm(*value) : batch.form;
  RowRefusal refusal;
  const Result<json::Value> conversation =
      CanonicalConversation(std::move(value).value(), row.form, normalize, &refusal);
  if (!conversation.ok()) return Refuse(row, refusal.reason, conversation.status().message());
  const std::string content = ContentForHash(*conversation);
  row.content_hash = HashBytes128(content);
  const std::string text = json::Write(*conversation);
  row.conversation = {batch.conversations.size(), text.size()};
  batch.conversations += text;
}

}  // namespace

void ParseBatch(RowBatch& batch, bool normalize, std::int64_t max_row_bytes) {
  batch.conversations.reserve(batch.raw_text.size());
  for (BatchRow& row : batch.rows) ParseRow(batch, row, normalize, max_row_bytes);
}

}  // namespace draftmill
