// Ids against the published reference ids of kitoken and llama.cpp, byte ranges against the field cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/test_data.h"
#include "base/utf8.h"
#include "stages/tokenize/tokenizer/tiktoken_model.h"
#include "stages/tokenize/tokenizer/tokenizer_json.h"

namespace draftmill {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Unpack(const std::string& packed) {
  std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  EXPECT_EQ(ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()), text.size());
  return text;
}

/// The tokenizers of the test data, each loaded once.
const Tokenizer& TokenizerOf(const std::string& name) {
  static std::map<std::string, std::unique_ptr<const Tokenizer>> loaded;
  std::unique_ptr<const Tokenizer>& tokenizer = loaded[name];
  if (tokenizer == nullptr) {
    const bool ranks = name == "kimi_k2";
    const std::string file = ranks ? "/tiktoken.model.zst" : "/tokenizer.json.zst";
    const std::string content = Unpack(ReadFile(*TestDataPath("tokenizers/" + name) + file));
    auto result = ranks ? ParseTiktokenModel(content, std::nullopt) : ParseTokenizerJson(content, "f");
    EXPECT_TRUE(result.ok()) << name << ": " << result.status().ToString();
    tokenizer = std::move(result).value();
  }
  return *tokenizer;
}

std::vector<std::int32_t> IdsOf(const Tokenizer& tokenizer, std::string_view text) {
  const Tokenizer::Scratch scratch = tokenizer.MakeScratch();
  Encoding encoding;
  const Status status = tokenizer.Encode(text, {}, *scratch, encoding);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return encoding.ids;
}

std::vector<std::int32_t> ParseIds(const std::string& line) {
  std::vector<std::int32_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) ids.push_back(std::atoi(word.c_str()));
  return ids;
}

std::string Unescape(std::string_view line) {
  static const std::map<char, char> kEscapes = {{'n', '\n'}, {'r', '\r'},  {'t', '\t'},
                                                {'0', '\0'}, {'\\', '\\'}, {'s', ' '}};
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto escape = line[i] == '\\' && i + 1 < line.size() ? kEscapes.find(line[i + 1]) : kEscapes.end();
    if (escape == kEscapes.end()) {
      text += line[i];
    } else {
      text += escape->second;
      ++i;
    }
  }
  return text;
}

struct KitokenCase {
  const char* tokenizer;
  const char* name;
};

class Kitoken : public testing::TestWithParam<KitokenCase> {};

TEST_P(Kitoken, IdsAreThePublishedOnes) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "tokenizer_golden/kitoken");
  const Tokenizer& tokenizer = TokenizerOf(GetParam().tokenizer);
  for (const std::string kind : {"small", "mixed", "utf8"}) {
    std::vector<std::string> texts;
    if (kind == "utf8") {
      texts.push_back(ReadFile(folder + "/utf8_input.txt"));
    } else {
      std::ifstream inputs(folder + "/" + kind + "_input.txt");
      for (std::string line; std::getline(inputs, line);) {
        if (!line.empty()) texts.push_back(Unescape(line));
      }
    }
    std::ifstream outputs(folder + "/" + kind + "_tokens_" + GetParam().name + ".txt");
    std::size_t index = 0;
    for (std::string line; std::getline(outputs, line) && index < texts.size();) {
      if (line.empty()) continue;
      for (char& character : line) character = character == ',' ? ' ' : character;
      EXPECT_EQ(IdsOf(tokenizer, texts[index]), ParseIds(line))
          << kind << " " << index << ": " << texts[index].substr(0, 80);
      ++index;
    }
    EXPECT_EQ(index, texts.size()) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kitoken,
                         testing::Values(KitokenCase{"gpt2", "gpt2"}, KitokenCase{"deepseek_v3", "r1"},
                                         KitokenCase{"gptoss", "gpt_oss"}, KitokenCase{"llama2", "llama2"},
                                         KitokenCase{"mistral03", "mistral03"}, KitokenCase{"kimi_k2", "kimi_k2"}),
                         [](const auto& one) { return std::string(one.param.tokenizer); });

class LlamaCpp : public testing::TestWithParam<KitokenCase> {};

TEST_P(LlamaCpp, IdsAreThePublishedOnes) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "tokenizer_golden/llama_cpp");
  const Tokenizer& tokenizer = TokenizerOf(GetParam().tokenizer);
  const std::string stem = folder + "/ggml-vocab-" + GetParam().name + ".gguf";
  const std::string inputs = ReadFile(stem + ".inp");
  static constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::ifstream outputs(stem + ".out");
  std::size_t begin = 0;
  int compared = 0;
  for (std::string line; std::getline(outputs, line) && begin <= inputs.size(); ++compared) {
    const std::size_t end = std::min(inputs.find(kSeparator, begin), inputs.size());
    const std::string text = inputs.substr(begin, end - begin);
    EXPECT_EQ(IdsOf(tokenizer, text), ParseIds(line)) << compared << ": " << text;
    begin = end + kSeparator.size();
  }
  EXPECT_GT(compared, 40);
}

INSTANTIATE_TEST_SUITE_P(All, LlamaCpp,
                         testing::Values(KitokenCase{"gpt2", "gpt-2"}, KitokenCase{"qwen3", "qwen2"},
                                         KitokenCase{"llama2", "llama-spm"}),
                         [](const auto& one) { return std::string(one.param.tokenizer); });

/// The hash of the ids of each code point alone and between letters.
std::string HashOfAllCodePoints(const Tokenizer& tokenizer) {
  const Tokenizer::Scratch scratch = tokenizer.MakeScratch();
  Encoding encoding;
  StreamingHash hash;
  std::string text;
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    for (const bool between : {false, true}) {
      text = between ? "a" : "";
      AppendUtf8(c, text);
      if (between) text += 'b';
      EXPECT_TRUE(tokenizer.Encode(text, {}, *scratch, encoding).ok());
      encoding.ids.push_back(-1);
      hash.Update(std::as_bytes(std::span(encoding.ids)));
    }
  }
  return ToHex(hash.Digest128());
}

struct CodePointCase {
  const char* tokenizer;
  const char* hash;
};

class CodePoints : public testing::TestWithParam<CodePointCase> {};

// The hashes were stored when tests/oracle/tokenizer_oracle.py --code-points had found no difference.
TEST_P(CodePoints, IdsAreThoseOfTheOracle) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, std::string("tokenizers/") + GetParam().tokenizer);
  EXPECT_EQ(HashOfAllCodePoints(TokenizerOf(GetParam().tokenizer)), GetParam().hash);
}

INSTANTIATE_TEST_SUITE_P(All, CodePoints,
                         testing::Values(CodePointCase{"gpt2", "441cd5bbeb41daaa0de8ed3aff6f99bb"},
                                         CodePointCase{"qwen3", "abdc8a80eb64dfa26e1399656c50c1c5"},
                                         CodePointCase{"deepseek_v3", "bbd31f48fac832d94d3f2c19348338c1"},
                                         CodePointCase{"gptoss", "ea48840cb5963a6d017bdce19a86ee6f"},
                                         CodePointCase{"llama2", "0cf212f9a0e7487a4e5dac27a434d2fe"},
                                         CodePointCase{"mistral03", "e97cd59bfc449206b1cb13c577c57ad6"},
                                         CodePointCase{"kimi_k2", "5c0a8ade75ec7cfe1fcdb0bd29f97b4a"}),
                         [](const auto& one) { return std::string(one.param.tokenizer); });

/// Ranges widened to whole characters.
std::vector<std::pair<std::int64_t, std::int64_t>> Widened(std::string_view text, const Encoding& encoding) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  const auto inside = [&](std::int64_t at) {
    return at > 0 && at < static_cast<std::int64_t>(text.size()) &&
           (static_cast<std::uint8_t>(text[static_cast<std::size_t>(at)]) & 0xC0U) == 0x80U;
  };
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    std::int64_t begin = encoding.begin[i];
    std::int64_t end = encoding.end[i];
    while (inside(begin)) --begin;
    while (inside(end)) ++end;
    ranges.emplace_back(begin, end);
  }
  return ranges;
}

void CheckRow(const json::Value& row, const std::string& file, const std::string& text, const std::string& folder) {
  const std::string prefix = "tokenizers/";
  const Tokenizer* tokenizer = nullptr;
  std::unique_ptr<const Tokenizer> own;
  if (file.substr(0, prefix.size()) == prefix) {
    tokenizer = &TokenizerOf(file.substr(prefix.size(), file.find('/', prefix.size()) - prefix.size()));
  } else {
    own = ParseTokenizerJson(ReadFile(folder + "/" + file), "f").value();
    tokenizer = own.get();
  }
  const Tokenizer::Scratch scratch = tokenizer->MakeScratch();
  Encoding encoding;
  ASSERT_TRUE(tokenizer->Encode(text, {}, *scratch, encoding).ok());
  std::vector<std::int32_t> ids;
  if (const json::Value* const listed = row.Find("input_ids")) {
    for (const json::Value& id : listed->as_array()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  } else {
    for (const json::Value& run : row.Find("ids_runs")->as_array()) {
      ids.insert(ids.end(), static_cast<std::size_t>(run.as_array()[1].as_integer()),
                 static_cast<std::int32_t>(run.as_array()[0].as_integer()));
    }
  }
  EXPECT_EQ(encoding.ids, ids) << folder << ": " << text.substr(0, 80);
  if (const json::Value* const offsets = row.Find("offsets")) {
    std::vector<std::pair<std::int64_t, std::int64_t>> right;
    for (const json::Value& pair : offsets->as_array()) {
      right.emplace_back(pair.as_array()[0].as_integer(), pair.as_array()[1].as_integer());
    }
    EXPECT_EQ(Widened(text, encoding), right) << folder << ": " << text;
  }
}

class FieldCases : public testing::TestWithParam<const char*> {};

TEST_P(FieldCases, EncodeAsTheCaseSays) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, std::string("field_cases/text/") + GetParam());
  const json::Value field_case = json::Parse(ReadFile(folder + "/case.json")).value();
  std::vector<std::string> texts;
  std::ifstream input(folder + "/input.jsonl");
  for (std::string line; std::getline(input, line);)
    texts.push_back(json::Parse(line).value().Find("text")->as_string());
  for (const json::Value& row : field_case.Find("right")->Find("rows")->as_array()) {
    const json::Value* settings = row.Find("settings") != nullptr ? row.Find("settings") : field_case.Find("settings");
    const auto line = static_cast<std::size_t>(row.Find("line")->as_integer());
    CheckRow(row, settings->Find("tokenizer")->as_string(), texts.at(line - 1), folder);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FieldCases,
                         testing::Values("byte_fallback_literal", "prefix_space_spm", "long_runs", "added_token_rstrip",
                                         "nfc_and_byte_ranges"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace draftmill
