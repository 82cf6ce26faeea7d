#include "base/utf8.h"

#include <cstring>

namespace draftmill {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;

/// The index of the first byte at or after `at` that is not ASCII.
std::size_t SkipAscii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & kHighBits) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

/// The length of the valid multi-byte character at `at`, or 0 (Unicode 15, table 3-7).
std::size_t MultiByteLength(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[at + i]); };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const std::size_t left = text.size() - at;
  const unsigned lead = byte(0);
  if (lead >= 0xC2 && lead <= 0xDF) return left >= 2 && continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (left < 3 || !continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogates
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (left < 4 || !continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;   // overlong
    if (lead == 0xF4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
    return 4;
  }
  return 0;
}

}  // namespace

std::size_t ValidUtf8Length(std::string_view text) {
  std::size_t at = SkipAscii(text, 0);
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = SkipAscii(text, at);
      continue;
    }
    const std::size_t length = MultiByteLength(text, at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

void AppendUtf8(std::uint32_t code_point, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string RepairedUtf8(std::string_view text) {
  std::string repaired;
  while (!text.empty()) {
    const std::size_t good = ValidUtf8Length(text);
    repaired += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    AppendUtf8(0xFFFD, repaired);
    text.remove_prefix(1);
  }
  return repaired;
}

}  // namespace draftmill
