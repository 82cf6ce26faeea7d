#include "stages/tokenize/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/test_clock.h"
#include "base/utf8.h"
#include "stages/tokenize/tokenizer/regex_translator.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> MatchesOf(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().ToString();
  std::vector<std::string> found;
  if (!regex.ok()) return found;
  const Status status = regex->FindAll(
      text, [&](std::uint32_t begin, std::uint32_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return found;
}

// Each expectation is what Oniguruma in `tokenizers` 0.23.3 finds.
TEST(Regex, MeansWhatOnigurumaMeans) {
  EXPECT_THAT(MatchesOf("[a-c&&[^b]]+", "abcab"), ElementsAre("a", "ca"));
  EXPECT_THAT(MatchesOf("a{1,2}+", "aaaaa"), ElementsAre("aaaaa"));
  EXPECT_THAT(MatchesOf("xa{2}?", "xaax"), ElementsAre("xaa", "x"));
  EXPECT_THAT(MatchesOf("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(MatchesOf("^.", "ab\ncd\n"), ElementsAre("a", "c"));
  EXPECT_THAT(MatchesOf(".$", "ab\ncd"), ElementsAre("b", "d"));
  EXPECT_THAT(MatchesOf("(?i:'s)", "'s'S'\u017f"), ElementsAre("'s", "'S", "'\u017f"));
  EXPECT_THAT(MatchesOf("'(?i:[sdmt]|ll|ve)", "'s'S'\u017f'Ll'vE'x"), ElementsAre("'s", "'S", "'\u017f", "'Ll", "'vE"));
  EXPECT_THAT(MatchesOf("(?i:[j-l0-9_])+", "kK\u212aJ7_mi"), ElementsAre("kK\u212aJ7_"));
  EXPECT_THAT(MatchesOf("(?i:[a-z]+)", "aZ\u017f\u00df\u00e9"), ElementsAre("aZ\u017f"));
  EXPECT_THAT(MatchesOf("x*", "axb"), ElementsAre("", "x", ""));
  EXPECT_THAT(MatchesOf("\\s", "a\u180e\u00a0b"), ElementsAre("\u00a0"));
  EXPECT_THAT(MatchesOf("[^\\S\\n]+", " \n\t "), ElementsAre(" ", "\t "));
  EXPECT_THAT(MatchesOf("\\bab\\b", "ab cab ab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(MatchesOf("\\v", "\n\x0b"), ElementsAre("\x0b"));
}

TEST(Regex, ClassesAreThoseOfOurTables) {
  std::string text;
  for (std::uint32_t c = 0; c < kCodePointLimit; ++c) {
    if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, text);
  }
  const UnicodeProperties& unicode = UnicodeProperties::Get();
  const auto count = [&](const char* pattern, auto contains) {
    std::vector<bool> members(kCodePointLimit, false);
    const Result<Regex> regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status().ToString();
    ASSERT_TRUE(regex
                    ->FindAll(text,
                              [&](std::uint32_t begin, std::uint32_t) {
                                unsigned length = 0;
                                members[DecodeUtf8(text, begin, length)] = true;
                              })
                    .ok());
    int wrong = 0;
    for (std::uint32_t c = 0; c < kCodePointLimit; ++c) {
      if (c < 0xD800 || c > 0xDFFF) wrong += members[c] != contains(c) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << pattern;
  };
  count("\\p{L}", [&](std::uint32_t c) { return (unicode.Classes(c) & kClassLetter) != 0; });
  count("[^\\s\\p{L}\\p{N}]",
        [&](std::uint32_t c) { return (unicode.Classes(c) & (kClassSpace | kClassLetter | kClassNumber)) == 0; });
  count("\\p{Han}", [&](std::uint32_t c) { return unicode.IsHan(c); });
  count("\\w", [&](std::uint32_t c) { return unicode.IsWord(c); });
  count("\\P{Lu}", [&](std::uint32_t c) { return unicode.Category(c) != GeneralCategory::kLu; });
}

TEST(Regex, RefusesByNameAndPlace) {
  for (const char* const pattern : {"(a)\\1",
                                    "\\h",
                                    "\\R",
                                    "\\X",
                                    "(?<n>a)",
                                    "(?i)a",
                                    "[[:alpha:]]",
                                    "a**",
                                    "*a",
                                    "(a",
                                    "a)",
                                    "[a",
                                    "[]",
                                    "[z-a]",
                                    "\\p{Nope}",
                                    "\\x{110000}",
                                    "\\xff",
                                    "a{1001}",
                                    "(?i:ss)",
                                    "(?i:\u00e9)",
                                    "(?i:[^a])",
                                    "(?i:[a\u00e9])",
                                    "(?i:[a-\u00e9])",
                                    "(?i:[\\s])",
                                    "(?i:[a[b]])",
                                    "(?i:[a&&b])",
                                    "\\K",
                                    "\\Ga",
                                    "\\"}) {
    const Status status = Regex::Compile(pattern).status();
    EXPECT_FALSE(status.ok()) << pattern;
    EXPECT_THAT(status.message(), testing::AnyOf(HasSubstr("at byte"), HasSubstr("not a valid pattern"))) << pattern;
  }
  EXPECT_THAT(TranslateRegex(std::string(100, '(')).status().message(), HasSubstr("nested"));
}

/// Oniguruma takes the Latin-1 numbers for word characters only where \w stands alone.
TEST(Regex, WordsInBracketsLackLatin1Numbers) {
  for (const char* text : {"\u00B2", "\u00B3", "\u00B9", "\u00BC", "\u00BD", "\u00BE"}) {
    for (const char* pattern : {"\\w", "[^\\w\\s]", "[\\W]"}) EXPECT_EQ(MatchesOf(pattern, text).size(), 1U) << pattern;
    for (const char* pattern : {"[\\w]", "\\W"}) EXPECT_EQ(MatchesOf(pattern, text).size(), 0U) << pattern;
  }
}

TEST(Regex, BacktrackingEndsInARefusalWithinASecond) {
  const Result<Regex> regex = Regex::Compile("(a+)+$|(a|aa)+b|(a|a)*c");
  ASSERT_TRUE(regex.ok());
  const double start = ProcessorSeconds();
  const Status status = regex->FindAll(std::string(5000, 'a') + "!", [](std::uint32_t, std::uint32_t) {});
  EXPECT_LT(ProcessorSeconds() - start, 1.0 * kSanitizerSlowdown);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("backtracking"));
}

TEST(Regex, LongMatchesAreNoBacktracking) {
  EXPECT_EQ(MatchesOf("\\p{L}+", std::string(1 << 20, 'a')).size(), 1U);
  EXPECT_EQ(MatchesOf("(?:a|b)+?c|\\s+", std::string(1 << 20, ' ')).size(), 1U);
}

}  // namespace
}  // namespace draftmill
