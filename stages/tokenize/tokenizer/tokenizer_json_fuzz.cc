// Any bytes as a tokenizer.json: loaded or refused, and what is loaded encodes a text of every kind.
#include <cstddef>
#include <cstdint>
#include <string>

#include "stages/tokenize/tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = draftmill::ParseTokenizerJson(json, "");
  if (!tokenizer.ok()) return 0;
  const draftmill::Tokenizer::Scratch scratch = (*tokenizer)->MakeScratch();
  draftmill::Encoding encoding;
  static constexpr char kText[] = "The 1st  caf\u00e9\r\n\n e\u0301 \u4e2d\u6587\U0001f600 'll <|end|> \u2581x";
  const draftmill::Status status = (*tokenizer)->Encode(kText, {}, *scratch, encoding);
  if (status.ok() && encoding.ids.size() != encoding.end.size()) __builtin_trap();
  for (const std::int64_t end : encoding.end) {
    if (end < 0 || end >= static_cast<std::int64_t>(sizeof(kText))) __builtin_trap();
  }
  return 0;
}
