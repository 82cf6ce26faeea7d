#include "stages/tokenize/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/tokenize/tokenizer/small_tokenizer_json.h"

namespace draftmill {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<const Tokenizer> Load(const SmallTokenizerJson& json) {
  Result<std::unique_ptr<const Tokenizer>> tokenizer = ParseTokenizerJson(json.Text(), "f");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::string RefusalOf(const SmallTokenizerJson& json) {
  return ParseTokenizerJson(json.Text(), "f").status().ToString();
}

Encoding Encode(const Tokenizer& tokenizer, std::string_view text, std::vector<ByteRange> plain_ranges = {}) {
  Encoding encoding;
  const Tokenizer::Scratch scratch = tokenizer.MakeScratch();
  const Status status = tokenizer.Encode(text, plain_ranges, *scratch, encoding);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return encoding;
}

TEST(TokenizerJson, MergesInOrderOfRanksWithinPieces) {
  const auto tokenizer = Load({});
  const Encoding encoding = Encode(*tokenizer, "the the 12\n\n\nx");
  EXPECT_THAT(encoding.ids, ElementsAre(257, 258, ' ', 259, 260, '\n', 'x'));
  EXPECT_THAT(encoding.begin, ElementsAre(0, 3, 7, 8, 10, 12, 13));
  EXPECT_THAT(encoding.end, ElementsAre(3, 7, 8, 10, 12, 13, 14));
  EXPECT_EQ(tokenizer->id_limit(), 261);
}

TEST(TokenizerJson, DigitsBeforeByteLevelStandAlone) {  // the form of SmolLM2's file
  SmallTokenizerJson json;
  json.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
      {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})";
  EXPECT_THAT(Encode(*Load(json), " 12 the").ids, ElementsAre(' ', '1', '2', 258));
}

TEST(TokenizerJson, NamesAreFoundInTheFilesSpelling) {
  SmallTokenizerJson json;
  json.added_tokens = R"([{"id":261,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,
      "normalized":false,"special":true}])";
  const auto tokenizer = Load(json);
  EXPECT_EQ(tokenizer->TokenToId("<|end|>"), 261);
  EXPECT_EQ(tokenizer->TokenToId("Ġthe"), 258);
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenBytes(258), " the");
  EXPECT_EQ(tokenizer->TokenBytes(261), "<|end|>");
  EXPECT_EQ(tokenizer->TokenBytes(262), "");
  EXPECT_EQ(tokenizer->TokenBytes(-1), "");
}

TEST(TokenizerJson, SpecialTokensInPlainRangesStayText) {
  SmallTokenizerJson json;
  json.added_tokens = R"([{"id":261,"content":"<e>","single_word":false,"lstrip":false,"rstrip":false,
      "normalized":false,"special":true}])";
  const auto tokenizer = Load(json);
  EXPECT_THAT(Encode(*tokenizer, "a<e>b<e>").ids, ElementsAre('a', 261, 'b', 261));
  EXPECT_THAT(Encode(*tokenizer, "a<e>b<e>", {{0, 5}}).ids, ElementsAre('a', '<', 'e', '>', 'b', 261));
  // A token that is half in a plain range is no token either; one that starts behind it is.
  EXPECT_THAT(Encode(*tokenizer, "<<e>", {{0, 1}}).ids, ElementsAre('<', 261));
  EXPECT_THAT(Encode(*tokenizer, "<e><e>", {{0, 2}}).ids, ElementsAre('<', 'e', '>', 261));
}

TEST(TokenizerJson, AnAddedTokenMayBeginInWhiteSpaceThatTheOneBeforeSwallows) {
  // The ids are those of tokenizers 0.23.3.
  const auto added = [](std::string_view content, std::string_view lstrip) {
    SmallTokenizerJson json;
    json.added_tokens =
        R"([{"id":261,"content":"<e>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,)"
        R"("special":true},{"id":262,"content":")" +
        std::string(content) + R"(","single_word":false,"lstrip":)" + std::string(lstrip) +
        R"(,"rstrip":false,"normalized":false,"special":false}])";
    return Load(json);
  };
  for (const char* lstrip : {"false", "true"}) {
    const auto tokenizer = added(" x", lstrip);
    const Encoding encoding = Encode(*tokenizer, "a<e>  xy");
    EXPECT_THAT(encoding.ids, ElementsAre('a', 261, 262, 'y')) << lstrip;
    EXPECT_THAT(encoding.begin, ElementsAre(0, 1, 6, 7));
    EXPECT_THAT(encoding.end, ElementsAre(1, 6, 7, 8));
  }
  EXPECT_THAT(Encode(*added("\\n", "true"), "<e>\nx").ids, ElementsAre(261, 'x'));
  // tokenizers writes the newline twice, and crashes where it also has lstrip and more white space follows.
  for (const auto& [lstrip, text] : {std::pair("false", "<e>\nx"), std::pair("true", "<e>\n x")}) {
    const auto tokenizer = added("\\n", lstrip);
    const Tokenizer::Scratch scratch = tokenizer->MakeScratch();
    Encoding encoding;
    EXPECT_THAT(tokenizer->Encode(text, {}, *scratch, encoding).ToString(), HasSubstr("added token of id 262"))
        << lstrip;
    EXPECT_TRUE(encoding.ids.empty());
  }
}

TEST(TokenizerJson, WhatReplacesSeveralCharactersDoesNotBeginTheTextForMetaspace) {
  SmallTokenizerJson json;
  json.normalizer = R"({"type":"Replace","pattern":{"Regex":"q+"},"content":"t"})";
  json.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"_",
      "prepend_scheme":"first","split":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  const auto tokenizer = Load(json);
  EXPECT_THAT(Encode(*tokenizer, "a").ids, ElementsAre('_', 'a'));
  EXPECT_THAT(Encode(*tokenizer, "qa").ids, ElementsAre('_', 't', 'a'));
  const Encoding encoding = Encode(*tokenizer, "qqqa");
  EXPECT_THAT(encoding.ids, ElementsAre('t', 'a'));
  EXPECT_THAT(encoding.begin, ElementsAre(0, 3));  // the range covers all of it nevertheless
}

TEST(TokenizerJson, PiecesThatBeginInsideACharacterAreMergedWhole) {
  SmallTokenizerJson json;
  json.merges = {{"\xE5", "\xAD"}, {"f", "f"}};
  // U+00AF stands for the byte AF, which is the second one of U+8BED.
  json.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[
      {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
      {"type":"Split","pattern":{"String":"\u00af"},"behavior":"Isolated","invert":false}]})";
  const auto tokenizer = Load(json);
  EXPECT_THAT(Encode(*tokenizer, "\u8BED\u5B57").ids, ElementsAre(0xE8, 0xAF, 0xAD, 256, 0x97));
  EXPECT_THAT(Encode(*tokenizer, "\u5B57\u8BEDff").ids, ElementsAre(256, 0x97, 0xE8, 0xAF, 0xAD, 257));
  EXPECT_THAT(Encode(*tokenizer, "\u5B57ff").ids, ElementsAre(256, 0x97, 257));
}

TEST(TokenizerJson, RefusesWithThePath) {
  SmallTokenizerJson json;
  json.normalizer = R"({"type":"BertNormalizer"})";
  EXPECT_THAT(RefusalOf(json), HasSubstr(R"($.normalizer: normalizer "BertNormalizer")"));
  json.normalizer = R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})";
  EXPECT_THAT(RefusalOf(json), HasSubstr(R"($.normalizer: normalizer "Precompiled")"));
  json = {};
  json.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"CharDelimiterSplit","delimiter":"x"}]})";
  EXPECT_THAT(RefusalOf(json), HasSubstr(R"($.pre_tokenizer.pretokenizers[0]: pre-tokenizer "CharDelimiterSplit")"));
  json = {};
  json.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":1}]})";
  EXPECT_THAT(RefusalOf(json), HasSubstr("$.pre_tokenizer.pretokenizers[0].individual_digits: expected true or false"));
  json = {};
  json.model_options = R"("dropout":0.1,)";
  EXPECT_THAT(RefusalOf(json), HasSubstr("$.model.dropout"));
  json = {};
  json.merges_text = R"(["t h","t"])";
  EXPECT_THAT(RefusalOf(json), HasSubstr("$.model.merges[1]"));
  json.merges_text = R"(["t q"])";
  EXPECT_THAT(RefusalOf(json), HasSubstr("token \"tq\" is not in the vocabulary"));
  json = {};
  json.added_tokens = R"([{"id":300,"content":"<e>","single_word":false,"lstrip":false,"rstrip":false,
      "normalized":false,"special":true}])";
  EXPECT_THAT(RefusalOf(json), HasSubstr("$.added_tokens[0].id"));
}

TEST(TokenizerJson, RefusesBrokenTextWithItsPlace) {
  const auto tokenizer = Load({});
  Encoding encoding;
  const Tokenizer::Scratch scratch = tokenizer->MakeScratch();
  const Status status = tokenizer->Encode("ab\xFFz", {}, *scratch, encoding);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("byte 2"));
}

}  // namespace
}  // namespace draftmill
