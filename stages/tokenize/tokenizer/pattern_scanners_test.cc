#include "stages/tokenize/tokenizer/pattern_scanners.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "stages/tokenize/tokenizer/regex_splitter.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

/// Text that meets the alternatives of the patterns: runs of few characters, of many kinds.
std::string RandomText(std::mt19937& random) {
  static const std::vector<std::u32string> kAlphabets = {U"abz",
                                                         U"AZ",
                                                         U"059",
                                                         U" ",
                                                         U" \t\n\r",
                                                         U"'",
                                                         U"stmdrvel",
                                                         U"STMDRVEL",
                                                         U".,!/-_(",
                                                         U"\r\n",
                                                         U"éÉſ",
                                                         U"中文〇々⺀",
                                                         U"あアー・",
                                                         U"\u0301\u0323\U00016ff0",
                                                         U"\u00a0\u3000\u0085",
                                                         U"½²٣",
                                                         U"ǅᾈ",
                                                         U"\u0001\u200b\u180e\ue000",
                                                         U"😀👍",
                                                         U"กุ"};
  std::string text;
  std::uniform_int_distribution<std::size_t> pick(0, kAlphabets.size() - 1);
  for (int run = 0; run < 8; ++run) {
    const std::u32string& alphabet = kAlphabets[pick(random)];
    const int length = std::uniform_int_distribution<int>(1, 4)(random);
    for (int i = 0; i < length; ++i) {
      std::uint32_t c = alphabet[std::uniform_int_distribution<std::size_t>(0, alphabet.size() - 1)(random)];
      if (random() % 64 == 0) c = std::uniform_int_distribution<std::uint32_t>(0, 0x3FFFF)(random);
      AppendUtf8(c >= 0xD800 && c < 0xE000 ? 'x' : c, text);
    }
  }
  return text;
}

std::string Describe(const std::string& text, const std::vector<Piece>& pieces) {
  std::string description;
  for (const Piece piece : pieces) description += "[" + text.substr(piece.begin, piece.end - piece.begin) + "]";
  return description;
}

class KnownPatterns : public testing::TestWithParam<std::size_t> {};

TEST_P(KnownPatterns, CutAsTheRegularExpressionDoes) {
  const std::string_view pattern = KnownScannerPatterns()[GetParam()];
  const PatternScanner scanner = FindPatternScanner(pattern);
  Result<Regex> regex = Regex::Compile(pattern);
  ASSERT_TRUE(regex.ok()) << pattern << ": " << regex.status().ToString();
  const auto oracle = MakeRegexSplitter(std::move(regex).value(), SplitBehavior::kIsolated, false);
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(random);
    const Piece whole{0, static_cast<std::uint32_t>(text.size())};
    std::vector<Piece> ours;
    std::vector<Piece> right;
    ASSERT_TRUE(scanner.splitter->Split(text, whole, ours).ok());
    ASSERT_TRUE(oracle->Split(text, whole, right).ok());
    ASSERT_EQ(Describe(text, ours), Describe(text, right)) << pattern;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KnownPatterns, testing::Range<std::size_t>(0, 11));

TEST(PatternScanners, AreAllTested) { EXPECT_EQ(KnownScannerPatterns().size(), 11U); }

}  // namespace
}  // namespace draftmill
