// Rows that come with their own ids and mask pass through unchanged, checked against the vocabulary and their text.
#include <algorithm>

#include "stages/tokenize/tokenize_stage.h"

namespace draftmill {
namespace {

/// The integers of a list, each within [0, limit).
Status ReadIntegers(const json::Value& row, std::string_view name, std::int64_t limit, std::vector<std::int64_t>& out) {
  const json::Value* list = row.Find(name);
  if (list == nullptr || !list->is_array())
    return InvalidInput("a pre-tokenized row must have a list " + std::string(name));
  for (const json::Value& item : list->as_array()) {
    const bool is_flag = item.is_bool();
    if (!is_flag && !item.is_integer()) {
      return InvalidInput(std::string(name) + "[" + std::to_string(out.size()) + "] must be an integer, not " +
                          std::string(item.KindName()));
    }
    const std::int64_t number = is_flag ? (item.as_bool() ? 1 : 0) : item.as_integer();
    if (number < 0 || number >= limit) {
      return InvalidInput(std::string(name) + "[" + std::to_string(out.size()) + "] is " + std::to_string(number) +
                          "; it must be at least 0 and less than " + std::to_string(limit));
    }
    out.push_back(number);
  }
  return OkStatus();
}

}  // namespace

Status TokenizeStage::ProcessPretokenized(const json::Value& row, LocalState& local, const Sink& sink) const {
  ++local.report_.pretokenized_rows;
  local.reason_ = "bad_pretokenized_row";
  std::vector<std::int64_t> numbers;
  const std::int64_t vocabulary = files_.vocab_rows.value_or(tokenizer_->id_limit());
  DRAFTMILL_RETURN_IF_ERROR(ReadIntegers(row, "input_ids", vocabulary, numbers));
  const std::vector<std::int32_t> ids(numbers.begin(), numbers.end());
  numbers.clear();
  DRAFTMILL_RETURN_IF_ERROR(ReadIntegers(row, "loss_mask", 2, numbers));
  const std::vector<std::uint8_t> mask(numbers.begin(), numbers.end());
  if (ids.size() != mask.size()) {
    return InvalidInput("input_ids has " + std::to_string(ids.size()) + " entries and loss_mask " +
                        std::to_string(mask.size()));
  }
  if (max_length_ && static_cast<std::int64_t>(ids.size()) > *max_length_) {
    local.reason_ = "too_long";
    return InvalidInput("the pre-tokenized row has " + std::to_string(ids.size()) + " tokens; max_length is " +
                        std::to_string(*max_length_));
  }
  const std::int64_t supervised = std::count(mask.begin(), mask.end(), 1);
  if (supervised < options_.min_supervised_tokens) {
    local.reason_ = "no_supervised_token";
    ++local.report_.samples_without_supervision;
    return InvalidInput("only " + std::to_string(supervised) + " tokens are supervised; at least " +
                        std::to_string(options_.min_supervised_tokens) + " must be");
  }
  const json::Value* text = row.Find("text");
  SampleView view;
  if (text != nullptr && text->is_string()) {
    local.reason_ = "tokenizer";
    DRAFTMILL_RETURN_IF_ERROR(tokenizer_->Encode(text->as_string(), {}, *local.tokenizer_scratch_, local.encoding_));
    view.text = text->as_string();
    view.text_differs = local.encoding_.ids != ids;
    if (view.text_differs)
      ++local.report_.pretokenized_text_differs;
    else
      view.encoding = &local.encoding_;
  }
  ++local.report_.samples;
  local.report_.tokens += static_cast<std::int64_t>(ids.size());
  local.report_.supervised_tokens += supervised;
  view.ids = ids;
  view.mask = mask;
  sink(view);
  return OkStatus();
}

}  // namespace draftmill
