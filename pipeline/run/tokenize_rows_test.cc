#include "pipeline/run/tokenize_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/tokenize/test_tokenizer.h"
#include "state/temporary_folder.h"

namespace draftmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}";

std::string Refusal(const TokenizeSettings& settings) {
  const auto options = ReadTokenizeOptions(settings);
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidConfig);
  return options.status().message();
}

TEST(TokenizeOptionsTest, DefaultsAreThoseOfAPipelineFile) {
  const auto options = ReadTokenizeOptions({});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->template_file, "");
  EXPECT_EQ(options->template_now, "2025-01-01T00:00:00");
  EXPECT_FALSE(options->max_length.has_value());
  EXPECT_EQ(options->min_supervised_tokens, 2);
  EXPECT_TRUE(options->variables.empty());
}

TEST(TokenizeOptionsTest, ReadsParametersVariablesAndTemplate) {
  const auto options =
      ReadTokenizeOptions({.template_file = "model",
                           .variables = {"enable_thinking=false", R"(bos_token="<s>")", "x={\"a\":[1]}"},
                           .parameters = {"max_length=18", "expand=per_turn", "too_long=drop",
                                          R"(stop_tokens=["<e>", "a=b"])", "variables={bos_token: no, y: 1}"}});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->template_file, "model");
  EXPECT_EQ(options->max_length, 18);
  EXPECT_EQ(options->expand, Expand::kPerTurn);
  EXPECT_EQ(options->too_long, TooLong::kDrop);
  EXPECT_EQ(options->stop_tokens, (std::vector<std::string>{"<e>", "a=b"}));
  EXPECT_EQ(json::Write(json::Value(options->variables), json::Style::kCanonical),
            R"({"bos_token":"<s>","enable_thinking":false,"x":{"a":[1]},"y":1})");
}

TEST(TokenizeOptionsTest, RefusesInTheWordsOfThePipelineFile) {
  EXPECT_EQ(Refusal({.template_file = {}, .variables = {}, .parameters = {"max_length=0"}}),
            "`tokenize.max_length` must be an integer from 1 to 16777216, or `model`, not `0`");
  EXPECT_THAT(
      Refusal({.template_file = {}, .variables = {}, .parameters = {"max_lenght=9"}}),
      AllOf(HasSubstr("unknown key `max_lenght` in section `tokenize`"), HasSubstr("did you mean `max_length`?")));
  EXPECT_THAT(Refusal({.template_file = {}, .variables = {}, .parameters = {"expand=per-turn"}}),
              HasSubstr("did you mean `per_turn`?"));
  EXPECT_THAT(Refusal({.template_file = {}, .variables = {}, .parameters = {"train_on_reasoning=yes"}}),
              HasSubstr("did you mean `true`?"));
  for (const char* text : {"expand", "=none", ""}) {
    EXPECT_THAT(Refusal({.template_file = {}, .variables = {}, .parameters = {text}}), HasSubstr("NAME=VALUE"));
  }
  EXPECT_THAT(Refusal({.template_file = {}, .variables = {}, .parameters = {"expand=none", "expand=auto"}}),
              HasSubstr("twice"));
  EXPECT_THAT(Refusal({.template_file = {}, .variables = {"bos_token=<s>"}, .parameters = {}}),
              HasSubstr("--set 'bos_token=\"text\"'"));
  EXPECT_THAT(Refusal({.template_file = "a", .variables = {}, .parameters = {"template=b"}}),
              HasSubstr("two templates"));
}

class TokenizeRowsTest : public ::testing::Test {
 protected:
  std::unique_ptr<const TokenizeStage> MakeStage(TokenizeOptions options, std::string chat_template = kTemplate) {
    ModelTextFiles files;
    files.chat_template = std::move(chat_template);
    options.stop_tokens = {"<e>"};
    auto stage = TokenizeStage::Create(options, std::make_unique<ByteTokenizer>(std::vector<std::string>{"<s>", "<e>"}),
                                       std::move(files));
    EXPECT_TRUE(stage.ok()) << stage.status().message();
    return std::move(stage).value();
  }

  /// The lines of a file of this name and content.
  Result<TokenizedRowCounts> Run(const TokenizeStage& stage, const std::string& name, const std::string& content) {
    lines_.clear();
    const std::string path = JoinPath(folder_.path(), name);
    EXPECT_TRUE(RealFileSystem().WriteAtomically(path, content).ok());
    return TokenizeRows(RealFileSystem(), stage, path, [this](const json::Value& line) {
      lines_.push_back(json::Write(line));
      return OkStatus();
    });
  }

  TemporaryFolder folder_;
  std::vector<std::string> lines_;
};

TEST_F(TokenizeRowsTest, PrintsRowsAndRefusalsInTheirOrder) {
  const auto stage = MakeStage({});
  const auto counts = Run(*stage, "rows.jsonl",
                          "\xEF\xBB\xBF{\"text\": \"h\xC3\xA9<e>\"}\r\n\n"
                          "{broken\n"
                          R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "ok"}]})"
                          "\n"
                          R"({"messages": [{"role": "wizard", "content": "q"}]})");
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(counts->rows, 4);
  EXPECT_EQ(counts->refused, 2);
  ASSERT_EQ(lines_.size(), 4U);
  EXPECT_EQ(lines_[0],
            R"({"row":0,"line":1,"byte_offset":0,"variant":0,"turn":-1,"text":"hé<e>","input_ids":[104,195,169,257],)"
            R"("loss_mask":[0,0,0,0],"offsets":[[0,1],[1,2],[2,3],[3,6]]})");
  EXPECT_THAT(lines_[1], HasSubstr(R"({"row":1,"line":3,"byte_offset":24,"reason":"broken_json","error":")"));
  EXPECT_THAT(lines_[2], HasSubstr(R"("text":"<s>user\nq<e><s>assistant\nok<e>")"));
  EXPECT_THAT(lines_[2], HasSubstr(R"("loss_mask":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1])"));
  EXPECT_THAT(lines_[3],
              AllOf(HasSubstr(R"("line":5,)"), HasSubstr(R"("reason":"unknown_role")"), HasSubstr("wizard")));
}

TEST_F(TokenizeRowsTest, ARowOfSeveralSamplesHasALineForEach) {
  TokenizeOptions options;
  options.expand = Expand::kPerTurn;
  const auto stage = MakeStage(options);
  const auto counts = Run(*stage, "rows.json",
                          R"([{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},)"
                          R"( {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]}])");
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(counts->rows, 1);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_THAT(lines_[0], HasSubstr(R"({"row":0,"byte_offset":1,"variant":0,"turn":1,)"));
  EXPECT_THAT(lines_[1], HasSubstr(R"("variant":1,"turn":3,"text":"<s>user\nq<e>)"));
}

TEST_F(TokenizeRowsTest, WithoutATemplateOnlyTextsPass) {
  const auto stage = MakeStage({}, "");
  const auto counts = Run(*stage, "rows.jsonl",
                          R"({"text": "a"})"
                          "\n"
                          R"({"messages": [{"role": "assistant", "content": "q"}]})");
  EXPECT_EQ(counts.status().code(), StatusCode::kInvalidConfig);
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(TokenizeRowsTest, FilesOfOtherKindsAreNamed) {
  const auto stage = MakeStage({});
  EXPECT_THAT(Run(*stage, "a.parquet", "PAR1").status().message(), HasSubstr("tools/parquet_to_jsonl.py"));
  EXPECT_THAT(Run(*stage, "a.csv", "x").status().message(), HasSubstr(".jsonl"));
  EXPECT_THAT(Run(*stage, "a.jsonl", std::string("\xFF\xFE{\0", 4)).status().message(), HasSubstr("UTF-16"));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(TokenizeRowsTest, EndsWherePrintingFails) {
  const auto stage = MakeStage({});
  const std::string path = JoinPath(folder_.path(), "rows.jsonl");
  ASSERT_TRUE(RealFileSystem().WriteAtomically(path, "{\"text\":\"a\"}\n{\"text\":\"b\"}\n").ok());
  int printed = 0;
  const auto counts = TokenizeRows(RealFileSystem(), *stage, path, [&](const json::Value&) {
    ++printed;
    return DiskFull("no space");
  });
  EXPECT_EQ(counts.status().code(), StatusCode::kDiskFull);
  EXPECT_EQ(printed, 1);
}

}  // namespace
}  // namespace draftmill
