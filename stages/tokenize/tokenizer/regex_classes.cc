#include "stages/tokenize/tokenizer/regex_classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/utf8.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

using Membership = std::vector<bool>;  // by code point

bool IsSurrogate(std::uint32_t c) { return c >= 0xD800 && c < 0xE000; }

struct NamedClass {
  std::string pcre2;  // the nearest class of PCRE2, or empty
  std::function<bool(std::uint32_t)> contains;
};

constexpr std::string_view kCategoryNames = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCoCn";

bool IsLatin1Number(std::uint32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0xBC || c == 0xBD || c == 0xBE;
}

std::optional<NamedClass> FindClass(std::string_view name) {
  const UnicodeProperties& unicode = UnicodeProperties::Get();
  if (name == "space") return NamedClass{"", [&](std::uint32_t c) { return (unicode.Classes(c) & kClassSpace) != 0; }};
  if (name == "word") return NamedClass{R"(\p{L}\p{M}\p{N}\p{Pc})", [&](std::uint32_t c) { return unicode.IsWord(c); }};
  if (name == "word in brackets") {
    return NamedClass{R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})",
                      [&](std::uint32_t c) { return unicode.IsWord(c) && !IsLatin1Number(c); }};
  }
  if (name == "Han") return NamedClass{R"(\p{sc:Han})", [&](std::uint32_t c) { return unicode.IsHan(c); }};
  if (name == "digit") name = "Nd";
  if (name.empty() || name.size() > 2) return std::nullopt;
  std::uint32_t categories = 0;
  for (std::size_t i = 0; i < kCategoryNames.size(); i += 2) {
    if (kCategoryNames.substr(i, name.size()) == name) categories |= 1U << (i / 2);
  }
  if (categories == 0) return std::nullopt;
  return NamedClass{"\\p{" + std::string(name) + "}", [&unicode, categories](std::uint32_t c) {
                      return (categories >> static_cast<unsigned>(unicode.Category(c)) & 1U) != 0;
                    }};
}

/// What the linked PCRE2 takes for members of a class.
Membership MembersInPcre2(const std::string& class_text) {
  Membership members(kCodePointLimit, false);
  if (class_text.empty()) return members;
  std::string text;
  for (std::uint32_t c = 0; c < kCodePointLimit; ++c) {
    if (!IsSurrogate(c)) AppendUtf8(c, text);
  }
  const std::string pattern = "[" + class_text + "]+";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                    &offset, nullptr),
      pcre2_code_free);
  if (code == nullptr) return members;
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 pcre2_match_data_free);
  std::size_t at = 0;
  while (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK,
                     data.get(), nullptr) > 0) {
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data.get());
    for (at = range[0]; at < range[1];) {
      unsigned length = 0;
      members[DecodeUtf8(text, at, length)] = true;
      at += length;
    }
  }
  return members;
}

void AppendRange(std::uint32_t first, std::uint32_t last, std::string& out) {
  char text[40];
  const int length = first == last ? std::snprintf(text, sizeof(text), "\\x{%x}", first)
                                   : std::snprintf(text, sizeof(text), "\\x{%x}-\\x{%x}", first, last);
  out.append(text, static_cast<std::size_t>(length));
}

std::string RangesOf(const std::function<bool(std::uint32_t)>& contains) {
  std::string text;
  for (std::uint32_t c = 0; c < kCodePointLimit; ++c) {
    if (IsSurrogate(c) || !contains(c)) continue;
    const std::uint32_t first = c;
    while (c + 1 < kCodePointLimit && !IsSurrogate(c + 1) && contains(c + 1)) ++c;
    AppendRange(first, c, text);
  }
  return text;
}

std::string MakeClassText(const NamedClass& named) {
  const Membership known = MembersInPcre2(named.pcre2);
  for (std::uint32_t c = 0; c < kCodePointLimit; ++c) {
    if (known[c] && !named.contains(c)) return RangesOf(named.contains);
  }
  return named.pcre2 + RangesOf([&](std::uint32_t c) { return named.contains(c) && !known[c]; });
}

}  // namespace

std::optional<std::string> ClassText(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::string, std::less<>> kept;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = kept.find(name);
  if (found != kept.end()) return found->second;
  const std::optional<NamedClass> named = FindClass(name);
  if (!named) return std::nullopt;
  return kept.emplace(name, MakeClassText(*named)).first->second;
}

}  // namespace draftmill
