#include "stages/tokenize/tokenizer/text_cuts.h"

#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

/// str.isspace of Python: \s, and the separators U+001C to U+001F.
bool IsPythonSpace(std::uint32_t c) {
  return (UnicodeProperties::Get().Classes(c) & kClassSpace) != 0 || (c >= 0x1C && c <= 0x1F);
}

}  // namespace

std::vector<Piece> CutText(std::string_view text, const CutLimits& limits) {
  std::vector<Piece> parts;
  std::uint32_t part_begin = 0;
  std::uint32_t characters = 0;  // since the last cut of the outer kind
  std::uint32_t run = 0;
  bool run_is_space = false;
  const auto size = static_cast<std::uint32_t>(text.size());
  for (std::uint32_t at = 0; at < size;) {
    unsigned length = 0;
    const bool space = IsPythonSpace(DecodeUtf8(text, at, length));
    if (characters == limits.text_characters) {
      parts.push_back({part_begin, at});
      part_begin = at;
      characters = 0;
    }
    if (characters == 0 || space != run_is_space) {
      run = 1;
      run_is_space = space;
    } else if (++run > limits.run_characters) {
      parts.push_back({part_begin, at});
      part_begin = at;
      run = 1;
    }
    ++characters;
    at += length;
  }
  if (part_begin < size) parts.push_back({part_begin, size});
  return parts;
}

}  // namespace draftmill
