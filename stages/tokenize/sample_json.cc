#include "stages/tokenize/sample_json.h"

#include <cstdint>
#include <utility>

namespace draftmill {

json::Object SampleAsJson(const TokenizedSample& sample) {
  json::Object line;
  line.emplace_back("variant", std::int64_t{sample.variant});
  line.emplace_back("turn", std::int64_t{sample.turn});
  if (!sample.error_reason.empty()) {
    line.emplace_back("reason", sample.error_reason);
    line.emplace_back("error", sample.error_message);
    return line;
  }
  line.emplace_back("text", sample.text);
  json::Array ids;
  for (const std::int32_t id : sample.input_ids) ids.emplace_back(std::int64_t{id});
  json::Array mask;
  for (const std::uint8_t bit : sample.loss_mask) mask.emplace_back(std::int64_t{bit});
  json::Array offsets;
  for (const ByteRange& range : sample.offsets) {
    offsets.emplace_back(json::Array{json::Value(range.begin), json::Value(range.end)});
  }
  line.emplace_back("input_ids", std::move(ids));
  line.emplace_back("loss_mask", std::move(mask));
  line.emplace_back("offsets", std::move(offsets));
  if (sample.text_differs) line.emplace_back("text_differs", true);
  return line;
}

}  // namespace draftmill
