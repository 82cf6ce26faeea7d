#include "stages/template/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace draftmill::jinja {
namespace {

/// A character that becomes more than one in another case, with the result as UTF-8.
struct Expansion {
  char32_t code;
  const char* text;
};

// From the Unicode Character Database's SpecialCasing.txt, unconditional entries, ascending.
constexpr Expansion kUpperExpansions[] = {
    {0x00DF, "\x53\x53"},
    {0x0149, "\xca\xbc\x4e"},
    {0x01F0, "\x4a\xcc\x8c"},
    {0x0390, "\xce\x99\xcc\x88\xcc\x81"},
    {0x03B0, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x0587, "\xd4\xb5\xd5\x92"},
    {0x1E96, "\x48\xcc\xb1"},
    {0x1E97, "\x54\xcc\x88"},
    {0x1E98, "\x57\xcc\x8a"},
    {0x1E99, "\x59\xcc\x8a"},
    {0x1E9A, "\x41\xca\xbe"},
    {0x1F50, "\xce\xa5\xcc\x93"},
    {0x1F52, "\xce\xa5\xcc\x93\xcc\x80"},
    {0x1F54, "\xce\xa5\xcc\x93\xcc\x81"},
    {0x1F56, "\xce\xa5\xcc\x93\xcd\x82"},
    {0x1F80, "\xe1\xbc\x88\xce\x99"},
    {0x1F81, "\xe1\xbc\x89\xce\x99"},
    {0x1F82, "\xe1\xbc\x8a\xce\x99"},
    {0x1F83, "\xe1\xbc\x8b\xce\x99"},
    {0x1F84, "\xe1\xbc\x8c\xce\x99"},
    {0x1F85, "\xe1\xbc\x8d\xce\x99"},
    {0x1F86, "\xe1\xbc\x8e\xce\x99"},
    {0x1F87, "\xe1\xbc\x8f\xce\x99"},
    {0x1F88, "\xe1\xbc\x88\xce\x99"},
    {0x1F89, "\xe1\xbc\x89\xce\x99"},
    {0x1F8A, "\xe1\xbc\x8a\xce\x99"},
    {0x1F8B, "\xe1\xbc\x8b\xce\x99"},
    {0x1F8C, "\xe1\xbc\x8c\xce\x99"},
    {0x1F8D, "\xe1\xbc\x8d\xce\x99"},
    {0x1F8E, "\xe1\xbc\x8e\xce\x99"},
    {0x1F8F, "\xe1\xbc\x8f\xce\x99"},
    {0x1F90, "\xe1\xbc\xa8\xce\x99"},
    {0x1F91, "\xe1\xbc\xa9\xce\x99"},
    {0x1F92, "\xe1\xbc\xaa\xce\x99"},
    {0x1F93, "\xe1\xbc\xab\xce\x99"},
    {0x1F94, "\xe1\xbc\xac\xce\x99"},
    {0x1F95, "\xe1\xbc\xad\xce\x99"},
    {0x1F96, "\xe1\xbc\xae\xce\x99"},
    {0x1F97, "\xe1\xbc\xaf\xce\x99"},
    {0x1F98, "\xe1\xbc\xa8\xce\x99"},
    {0x1F99, "\xe1\xbc\xa9\xce\x99"},
    {0x1F9A, "\xe1\xbc\xaa\xce\x99"},
    {0x1F9B, "\xe1\xbc\xab\xce\x99"},
    {0x1F9C, "\xe1\xbc\xac\xce\x99"},
    {0x1F9D, "\xe1\xbc\xad\xce\x99"},
    {0x1F9E, "\xe1\xbc\xae\xce\x99"},
    {0x1F9F, "\xe1\xbc\xaf\xce\x99"},
    {0x1FA0, "\xe1\xbd\xa8\xce\x99"},
    {0x1FA1, "\xe1\xbd\xa9\xce\x99"},
    {0x1FA2, "\xe1\xbd\xaa\xce\x99"},
    {0x1FA3, "\xe1\xbd\xab\xce\x99"},
    {0x1FA4, "\xe1\xbd\xac\xce\x99"},
    {0x1FA5, "\xe1\xbd\xad\xce\x99"},
    {0x1FA6, "\xe1\xbd\xae\xce\x99"},
    {0x1FA7, "\xe1\xbd\xaf\xce\x99"},
    {0x1FA8, "\xe1\xbd\xa8\xce\x99"},
    {0x1FA9, "\xe1\xbd\xa9\xce\x99"},
    {0x1FAA, "\xe1\xbd\xaa\xce\x99"},
    {0x1FAB, "\xe1\xbd\xab\xce\x99"},
    {0x1FAC, "\xe1\xbd\xac\xce\x99"},
    {0x1FAD, "\xe1\xbd\xad\xce\x99"},
    {0x1FAE, "\xe1\xbd\xae\xce\x99"},
    {0x1FAF, "\xe1\xbd\xaf\xce\x99"},
    {0x1FB2, "\xe1\xbe\xba\xce\x99"},
    {0x1FB3, "\xce\x91\xce\x99"},
    {0x1FB4, "\xce\x86\xce\x99"},
    {0x1FB6, "\xce\x91\xcd\x82"},
    {0x1FB7, "\xce\x91\xcd\x82\xce\x99"},
    {0x1FBC, "\xce\x91\xce\x99"},
    {0x1FC2, "\xe1\xbf\x8a\xce\x99"},
    {0x1FC3, "\xce\x97\xce\x99"},
    {0x1FC4, "\xce\x89\xce\x99"},
    {0x1FC6, "\xce\x97\xcd\x82"},
    {0x1FC7, "\xce\x97\xcd\x82\xce\x99"},
    {0x1FCC, "\xce\x97\xce\x99"},
    {0x1FD2, "\xce\x99\xcc\x88\xcc\x80"},
    {0x1FD3, "\xce\x99\xcc\x88\xcc\x81"},
    {0x1FD6, "\xce\x99\xcd\x82"},
    {0x1FD7, "\xce\x99\xcc\x88\xcd\x82"},
    {0x1FE2, "\xce\xa5\xcc\x88\xcc\x80"},
    {0x1FE3, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x1FE4, "\xce\xa1\xcc\x93"},
    {0x1FE6, "\xce\xa5\xcd\x82"},
    {0x1FE7, "\xce\xa5\xcc\x88\xcd\x82"},
    {0x1FF2, "\xe1\xbf\xba\xce\x99"},
    {0x1FF3, "\xce\xa9\xce\x99"},
    {0x1FF4, "\xce\x8f\xce\x99"},
    {0x1FF6, "\xce\xa9\xcd\x82"},
    {0x1FF7, "\xce\xa9\xcd\x82\xce\x99"},
    {0x1FFC, "\xce\xa9\xce\x99"},
    {0xFB00, "\x46\x46"},
    {0xFB01, "\x46\x49"},
    {0xFB02, "\x46\x4c"},
    {0xFB03, "\x46\x46\x49"},
    {0xFB04, "\x46\x46\x4c"},
    {0xFB05, "\x53\x54"},
    {0xFB06, "\x53\x54"},
    {0xFB13, "\xd5\x84\xd5\x86"},
    {0xFB14, "\xd5\x84\xd4\xb5"},
    {0xFB15, "\xd5\x84\xd4\xbb"},
    {0xFB16, "\xd5\x8e\xd5\x86"},
    {0xFB17, "\xd5\x84\xd4\xbd"},
};

constexpr Expansion kTitleExpansions[] = {
    {0x00DF, "\x53\x73"},
    {0x0149, "\xca\xbc\x4e"},
    {0x01F0, "\x4a\xcc\x8c"},
    {0x0390, "\xce\x99\xcc\x88\xcc\x81"},
    {0x03B0, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x0587, "\xd4\xb5\xd6\x82"},
    {0x1E96, "\x48\xcc\xb1"},
    {0x1E97, "\x54\xcc\x88"},
    {0x1E98, "\x57\xcc\x8a"},
    {0x1E99, "\x59\xcc\x8a"},
    {0x1E9A, "\x41\xca\xbe"},
    {0x1F50, "\xce\xa5\xcc\x93"},
    {0x1F52, "\xce\xa5\xcc\x93\xcc\x80"},
    {0x1F54, "\xce\xa5\xcc\x93\xcc\x81"},
    {0x1F56, "\xce\xa5\xcc\x93\xcd\x82"},
    {0x1FB2, "\xe1\xbe\xba\xcd\x85"},
    {0x1FB4, "\xce\x86\xcd\x85"},
    {0x1FB6, "\xce\x91\xcd\x82"},
    {0x1FB7, "\xce\x91\xcd\x82\xcd\x85"},
    {0x1FC2, "\xe1\xbf\x8a\xcd\x85"},
    {0x1FC4, "\xce\x89\xcd\x85"},
    {0x1FC6, "\xce\x97\xcd\x82"},
    {0x1FC7, "\xce\x97\xcd\x82\xcd\x85"},
    {0x1FD2, "\xce\x99\xcc\x88\xcc\x80"},
    {0x1FD3, "\xce\x99\xcc\x88\xcc\x81"},
    {0x1FD6, "\xce\x99\xcd\x82"},
    {0x1FD7, "\xce\x99\xcc\x88\xcd\x82"},
    {0x1FE2, "\xce\xa5\xcc\x88\xcc\x80"},
    {0x1FE3, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x1FE4, "\xce\xa1\xcc\x93"},
    {0x1FE6, "\xce\xa5\xcd\x82"},
    {0x1FE7, "\xce\xa5\xcc\x88\xcd\x82"},
    {0x1FF2, "\xe1\xbf\xba\xcd\x85"},
    {0x1FF4, "\xce\x8f\xcd\x85"},
    {0x1FF6, "\xce\xa9\xcd\x82"},
    {0x1FF7, "\xce\xa9\xcd\x82\xcd\x85"},
    {0xFB00, "\x46\x66"},
    {0xFB01, "\x46\x69"},
    {0xFB02, "\x46\x6c"},
    {0xFB03, "\x46\x66\x69"},
    {0xFB04, "\x46\x66\x6c"},
    {0xFB05, "\x53\x74"},
    {0xFB06, "\x53\x74"},
    {0xFB13, "\xd5\x84\xd5\xb6"},
    {0xFB14, "\xd5\x84\xd5\xa5"},
    {0xFB15, "\xd5\x84\xd5\xab"},
    {0xFB16, "\xd5\x8e\xd5\xb6"},
    {0xFB17, "\xd5\x84\xd5\xad"},
};

template <std::size_t N>
const char* FindExpansion(const Expansion (&table)[N], char32_t code) {
  const Expansion* end = std::end(table);
  const Expansion* found =
      std::lower_bound(std::begin(table), end, code, [](const Expansion& entry, char32_t c) { return entry.code < c; });
  return found != end && found->code == code ? found->text : nullptr;
}

utf8proc_category_t Category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool IsCased(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

bool IsCaseIgnorable(char32_t code) {
  switch (Category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019 || code == 0x2018;
  }
}

/// Unicode's Final_Sigma: a cased letter before, none after, looking past case-ignorable characters.
bool IsFinalSigma(std::string_view text, std::size_t at) {
  bool cased_before = false;
  for (std::size_t end = at; end > 0;) {
    end = CharacterBegin(text, end);
    const char32_t code = DecodeAt(text, end).code;
    if (IsCaseIgnorable(code)) continue;
    cased_before = IsCased(code);
    break;
  }
  if (!cased_before) return false;
  for (std::size_t next = at + 2; next < text.size();) {
    const DecodedCharacter character = DecodeAt(text, next);
    if (!IsCaseIgnorable(character.code)) return !IsCased(character.code);
    next += character.bytes;
  }
  return true;
}

}  // namespace

std::size_t CharacterBegin(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) --at;
  return at;
}

DecodedCharacter DecodeAt(std::string_view text, std::size_t at) {
  const auto byte = [text, at](std::size_t i) -> char32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0x80U;
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1FU) << 6) | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {((lead & 0x0FU) << 12) | ((byte(1) & 0x3FU) << 6) | (byte(2) & 0x3FU), 3};
  return {((lead & 0x07U) << 18) | ((byte(1) & 0x3FU) << 12) | ((byte(2) & 0x3FU) << 6) | (byte(3) & 0x3FU), 4};
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | (code >> 6));
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | (code >> 12));
    put(0x80U | ((code >> 6) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | (code >> 18));
    put(0x80U | ((code >> 12) & 0x3FU));
    put(0x80U | ((code >> 6) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

bool IsAscii(std::string_view text) {
  unsigned char bits = 0;
  for (const char c : text) bits |= static_cast<unsigned char>(c);
  return bits < 0x80;
}

std::size_t CountCharacters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80 ? 1 : 0;
  return count;
}

std::size_t ByteOfCharacter(std::string_view text, std::size_t index) {
  std::size_t seen = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) continue;
    if (seen++ == index) return at;
  }
  return text.size();
}

bool IsPythonSpace(char32_t code) {
  if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  if (code < 0x85) return false;
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::size_t LeadingSpaceBytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ' ' || text[at] == '\n') {
      ++at;
      continue;
    }
    const DecodedCharacter character = DecodeAt(text, at);
    if (!IsPythonSpace(character.code)) break;
    at += character.bytes;
  }
  return at;
}

std::size_t TrailingSpaceBytes(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    if (text[end - 1] == ' ' || text[end - 1] == '\n') {
      --end;
      continue;
    }
    const std::size_t begin = CharacterBegin(text, end);
    if (!IsPythonSpace(DecodeAt(text, begin).code)) break;
    end = begin;
  }
  return text.size() - end;
}

bool IsPrintable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  switch (Category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool IsAlphabetic(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimalDigit(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t code) {
  if (IsDecimalDigit(code)) return true;
  // Numeric_Type=Digit of the Unicode Character Database.
  static constexpr struct {
    char32_t first;
    char32_t last;
  } kDigits[] = {{0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
                 {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
                 {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
                 {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kDigits), std::end(kDigits),
                     [code](const auto& range) { return range.first <= code && code <= range.last; });
}

bool IsNumeric(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsUppercase(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_LU; }

bool IsLowercase(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_LL; }

void AppendUpper(char32_t code, std::string& out) {
  if (const char* text = FindExpansion(kUpperExpansions, code)) {
    out += text;
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))), out);
}

void AppendTitle(char32_t code, std::string& out) {
  if (const char* text = FindExpansion(kTitleExpansions, code)) {
    out += text;
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))), out);
}

void AppendLowerAt(std::string_view text, std::size_t at, std::string& out) {
  const char32_t code = DecodeAt(text, at).code;
  if (code == 0x130) {
    out += "i\xCC\x87";
  } else if (code == 0x3A3 && IsFinalSigma(text, at)) {
    AppendUtf8(0x3C2, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), out);
  }
}

}  // namespace draftmill::jinja
