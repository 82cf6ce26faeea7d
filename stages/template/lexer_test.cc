#include "stages/template/lexer.h"

#include <gtest/gtest.h>

namespace draftmill::jinja {
namespace {

/// All data of a template's text, joined with '|'.
std::string Data(std::string_view source) {
  const Result<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return "! " + tokens.status().message();
  std::string data;
  for (const Token& token : *tokens) {
    if (token.type == TokenType::kData) data += (data.empty() ? "" : "|") + token.text;
  }
  return data;
}

TEST(LexerTest, TrimsAndStripsAroundBlocksAsJinjaDoes) {
  EXPECT_EQ(Data("a\n  {% x %}\nb"), "a\n|b");
  EXPECT_EQ(Data("a {% x %}\n\nb"), "a |\nb");
  EXPECT_EQ(Data("a\n  {%+ x %}b"), "a\n  |b");
  EXPECT_EQ(Data("a \n {%- x -%} \n b"), "a|b");
  EXPECT_EQ(Data("  {{ x }}\nb"), "  |\nb");
  EXPECT_EQ(Data("  {# c #}\nb"), "b");
  EXPECT_EQ(Data("  {# c -#}  \n b"), "b");
  EXPECT_EQ(Data("{% x +%}\nb"), "\nb");
}

TEST(LexerTest, LineEndsBecomeNewlinesAndTheLastOneIsDropped) {
  EXPECT_EQ(Data("a\r\nb\rc\n"), "a\nb\nc");
  EXPECT_EQ(Data("a\n\n"), "a\n");
}

TEST(LexerTest, RawTextStays) {
  EXPECT_EQ(Data("{% raw %}{{ x }}{% endraw %}b"), "{{ x }}|b");
  EXPECT_EQ(Data("{%- raw -%}  {% x %}{%- endraw %}\nb"), "{% x %}|b");
  EXPECT_EQ(Data("{% raw %}x"), "! template line 1: Missing end of raw directive");
}

TEST(LexerTest, EscapesAreThoseOfPython) {
  const Result<std::vector<Token>> tokens = Tokenize(R"({{ '\n\x41\u00e9\U0001F680\q\'' }})");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ((*tokens)[1].text, "\nA\u00e9\U0001F680\\q'");
}

TEST(LexerTest, RefusalsNameTheLine) {
  EXPECT_EQ(Data("\n\n{{ ! }}"), "! template line 3: unexpected character '!'");
  EXPECT_EQ(Data("{{ (] }}"), "! template line 1: unexpected ']', expected ')'");
  EXPECT_EQ(Data("{{ 'a }}"), "! template line 1: a string is not closed");
  EXPECT_EQ(Data("{# a"), "! template line 1: Missing end of comment tag");
  EXPECT_EQ(Data("{% if"), "! template line 1: the template ends inside {% ... %}");
}

TEST(LexerTest, BracketsKeepTheTagOpen) {
  const Result<std::vector<Token>> tokens = Tokenize("{{ {'a': {}} }}x");
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), 10U);
  EXPECT_EQ((*tokens)[8].text, "x");
}

}  // namespace
}  // namespace draftmill::jinja
