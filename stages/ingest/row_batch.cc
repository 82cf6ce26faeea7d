#include "stages/ingest/row_batch.h"

#include <utility>

namespace draftmill {
namespace {

/// Half of what the parser allows by itself: an ingested row is read back from inside a larger object.
constexpr int kMaxRowDepth = 128;

void Refuse(BatchRow& row, const RowRefusal& refusal, const Status& status) {
  row.reason = refusal.reason;
  row.message = status.message();
}

void ParseRow(RowBatch& batch, BatchRow& row, bool normalize, std::int64_t max_row_bytes) {
  RawRow raw;
  raw.text = batch.RawText(row);
  raw.size_bytes = row.size_bytes;
  raw.is_too_long = row.is_too_long;
  raw.fault = row.fault;
  RowRefusal refusal;
  Result<json::Value> value = ParseRawRow(raw, max_row_bytes, refusal);
  if (!value.ok()) return Refuse(row, refusal, value.status());
  row.form = batch.form == RowForm::kAuto ? RecognizedForm(*value) : batch.form;
  const Result<json::Value> conversation =
      CanonicalConversation(std::move(value).value(), row.form, normalize, &refusal);
  if (!conversation.ok()) return Refuse(row, refusal, conversation.status());
  const std::string content = ContentForHash(*conversation);
  row.content_hash = HashBytes128(content);
  const std::string text = json::Write(*conversation);
  row.conversation = {batch.conversations.size(), text.size()};
  batch.conversations += text;
}

}  // namespace

Result<json::Value> ParseRawRow(const RawRow& row, std::int64_t max_row_bytes, RowRefusal& refusal) {
  if (!row.fault.empty()) return refusal.Refuse("broken_json", std::string(row.fault));
  if (row.is_too_long) {
    return refusal.Refuse("row_too_long", "the row has " + std::to_string(row.size_bytes) +
                                              " bytes, more than ingest.max_row_bytes (" +
                                              std::to_string(max_row_bytes) + ")");
  }
  json::ParseFailure failure;
  Result<json::Value> value = json::Parse(row.text, {.max_depth = kMaxRowDepth}, &failure);
  if (!value.ok()) return refusal.Refuse(ReasonOf(failure.fault), value.status().message() + " of the row");
  return value;
}

void ParseBatch(RowBatch& batch, bool normalize, std::int64_t max_row_bytes) {
  batch.conversations.reserve(batch.raw_text.size());
  for (BatchRow& row : batch.rows) ParseRow(batch, row, normalize, max_row_bytes);
}

}  // namespace draftmill
