// Any bytes as a rank file (the part before the first NUL byte is the tokenizer_config.json).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stages/tokenize/tokenizer/tiktoken_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = all.find('\0');
  if (cut == std::string_view::npos) {
    static_cast<void>(draftmill::ParseTiktokenModel(all, std::nullopt).ok());
    return 0;
  }
  const auto tokenizer = draftmill::ParseTiktokenModel(all.substr(cut + 1), std::string(all.substr(0, cut)));
  if (!tokenizer.ok()) return 0;
  const draftmill::Tokenizer::Scratch scratch = (*tokenizer)->MakeScratch();
  draftmill::Encoding encoding;
  if (!(*tokenizer)->Encode("The 1st caf\u00e9 \u4e2d\u6587 <|im_end|>", {}, *scratch, encoding).ok()) __builtin_trap();
  return 0;
}
