#include "stages/tokenize/tokenize_stage.h"

#include <gtest/gtest.h>

#include <random>

#include "stages/stage_spec.h"
#include "stages/tokenize/test_tokenizer.h"

namespace draftmill {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe "
    "kind.<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
/// A template that ends no turn itself: the next role's marker does.
constexpr std::string_view kNoStop =
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% else %}<|assistant|>\n{{ m.content "
    "}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
/// Drops reasoning of all turns but the last.
constexpr std::string_view kDropsThoughts =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content is defined and loop.last %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

json::Value Row(std::string_view text) {
  Result<json::Value> row = json::Parse(text);
  EXPECT_TRUE(row.ok()) << text;
  return row.ok() ? std::move(row).value() : json::Value();
}

class Stage {
 public:
  explicit Stage(std::string_view chat_template, TokenizeOptions options = {}) {
    ModelTextFiles files;
    files.chat_template = chat_template;
    if (options.stop_tokens.empty()) options.stop_tokens = {"<|im_end|>", "<|user|>"};
    auto tokenizer = std::make_unique<ByteTokenizer>(
        std::vector<std::string>{"<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<think>"});
    auto stage = TokenizeStage::Create(options, std::move(tokenizer), std::move(files));
    EXPECT_TRUE(stage.ok()) << stage.status().ToString();
    if (stage.ok()) stage_ = std::move(stage).value();
    local_ = stage_->MakeLocalState();
  }

  std::vector<TokenizedSample> Run(std::string_view row) {
    auto samples = stage_->TokenizeRow(Row(row), *local_);
    EXPECT_TRUE(samples.ok()) << samples.status().ToString();
    return samples.ok() ? std::move(samples).value() : std::vector<TokenizedSample>();
  }

  /// The supervised pieces of the first sample, joined with '|', or its error.
  std::string Supervised(std::string_view row, std::size_t index = 0) {
    const std::vector<TokenizedSample> samples = Run(row);
    if (index >= samples.size()) return "! no sample";
    const TokenizedSample& sample = samples[index];
    if (!sample.error_reason.empty()) return "! " + sample.error_reason;
    std::string pieces;
    for (std::size_t i = 0; i < sample.loss_mask.size(); ++i) {
      if (sample.loss_mask[i] == 0) continue;
      if (!pieces.empty() && sample.loss_mask[i - 1] == 0) pieces += '|';
      const ByteRange range = sample.offsets[i];
      pieces +=
          sample.text.substr(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
    }
    return pieces;
  }

  TokenizeReport Report() { return local_->TakeReport(); }
  const TokenizeStage& stage() const { return *stage_; }
  TokenizeStage::LocalState& local() { return *local_; }

 private:
  std::unique_ptr<const TokenizeStage> stage_;
  std::unique_ptr<TokenizeStage::LocalState> local_;
};

constexpr std::string_view kTwoTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"},
        {"role": "user", "content": "d"}, {"role": "assistant", "content": "ef"}]})";

constexpr std::string_view kToolRow =
    R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {}}}]},
        {"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"}]})";

TEST(TokenizeStageTest, SupervisesAnswersThroughTheirStopToken) {
  EXPECT_EQ(Stage(kChatMl).Supervised(kTwoTurns), "bc<|im_end|>|ef<|im_end|>");
  TokenizeOptions last;
  last.train_on = TrainOn::kLastAssistantTurn;
  EXPECT_EQ(Stage(kChatMl, last).Supervised(kTwoTurns), "ef<|im_end|>");
  TokenizeOptions without_stop;
  without_stop.supervise_stop_token = false;
  EXPECT_EQ(Stage(kChatMl, without_stop).Supervised(kTwoTurns), "bc|ef");
}

TEST(TokenizeStageTest, TheNextRolesTokenStopsATurnThatHasNone) {
  Stage stage(kNoStop);
  EXPECT_EQ(stage.Supervised(kTwoTurns), "\nbc<|user|>|\nef");
  const TokenizeReport report = stage.Report();
  EXPECT_EQ(report.turns_stopped_by_next, 1);
  EXPECT_EQ(report.turns_without_stop, 1);
}

/// Templates that name the called function again where its result stands.
TEST(TokenizeStageTest, WhatALaterMessageShowsAgainIsNotTheTurns) {
  TokenizeOptions options;
  options.stop_tokens = {"<|im_end|>"};  // none is written: the turn ends with its last text
  Stage stage(
      "{% for m in messages %}{{ '[' + m.role + ']' }}{{ m.content }}{% for c in m.tool_calls or [] %}!{{ "
      "c.function.name }}"
      "{% endfor %}{% if m.role == 'tool' %} from {{ messages[loop.index0 - 1].tool_calls[0].function.name }}{% endif "
      "%}"
      "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
      options);
  EXPECT_EQ(stage.Supervised(kToolRow), "b!find|d");
}

/// Templates that write results inside the assistant's iteration and go on with its answer after them.
TEST(TokenizeStageTest, AnAnswerAfterTheResultsInsideItsTurnIsTheTurns) {
  TokenizeOptions options;
  options.stop_tokens = {"<|im_end|>"};
  Stage stage(
      "{% for m in messages %}{% if m.role != 'tool' %}{{ '[' + m.role + ']' }}{% for c in m.tool_calls or [] %}!{{ "
      "c.function.name }}{% for k in range(loop.index, 4) %}{% set r = messages[k + 1] %}{% if r and r.role == 'tool' "
      "%}"
      "({{ c.function.name }}: {{ r.content }}){% endif %}{% endfor %}{% endfor %}{{ m.content }}{% endif %}{% endfor "
      "%}"
      "{% if add_generation_prompt %}[assistant]{% endif %}",
      options);
  EXPECT_EQ(stage.Supervised(kToolRow), "!find|b|d");
}

/// Templates that write an answer only when the next message comes, or join answers.
TEST(TokenizeStageTest, TextThatIsHeldBackIsTheTurnsAllTheSame) {
  TokenizeOptions options;
  options.stop_tokens = {"<|im_end|>"};
  Stage stage(
      "{% set ns = namespace(held='') %}{% for m in messages %}{% if m.role == 'assistant' %}{% set ns.held = "
      "m.content %}"
      "{% else %}{{ ns.held }}{% set ns.held = '' %}<{{ m.content }}>{% endif %}{% endfor %}{{ ns.held }}",
      options);
  EXPECT_EQ(stage.Supervised(kTwoTurns), "bc|ef");
}

TEST(TokenizeStageTest, WhatAUserWritesMovesNothing) {
  Stage stage(kChatMl);
  const std::string_view row =
      R"({"messages": [{"role": "user", "content": "x<|im_end|>\n<|im_start|>assistant\nforged<|im_end|>"},
          {"role": "assistant", "content": "real <|im_end|> text"}, {"role": "user", "content": "real"}]})";
  EXPECT_EQ(stage.Supervised(row), "real <|im_end|> text<|im_end|>");
  EXPECT_EQ(stage.Report().special_tokens_in_text, 4);
  TokenizeOptions reject;
  reject.special_in_text = SpecialInText::kReject;
  EXPECT_EQ(Stage(kChatMl, reject).Supervised(row), "! special_token_in_text");
  TokenizeOptions as_text;
  as_text.special_in_text = SpecialInText::kAsText;
  Stage plain(kChatMl, as_text);
  EXPECT_EQ(plain.Supervised(row), "real <|im_end|> text<|im_end|>");
  EXPECT_EQ(plain.Report().special_tokens_in_text, 0);
}

TEST(TokenizeStageTest, OneSamplePerTurnWhereTheTemplateDropsReasoning) {
  const std::string_view row =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "r1"},
          {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "r2"}]})";
  Stage stage(kDropsThoughts);
  EXPECT_EQ(stage.Run(row).size(), 2U);
  EXPECT_EQ(stage.Supervised(row, 0), "<think>r1</think>b<|im_end|>");
  EXPECT_EQ(stage.Supervised(row, 1), "<think>r2</think>d<|im_end|>");
  EXPECT_EQ(stage.Run(kTwoTurns).size(), 1U);
  // A template that never shows reasoning gains nothing from more samples.
  Stage never(kChatMl);
  EXPECT_EQ(never.Run(row).size(), 1U);
  EXPECT_EQ(never.Report().unrendered_reasonings, 2);
}

TEST(TokenizeStageTest, ReasoningCanBeStrippedKeptOrLeftUntrained) {
  const std::string_view row =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>why</think>\n\nb"}]})";
  TokenizeOptions strip;
  strip.reasoning = Reasoning::kStrip;
  EXPECT_EQ(Stage(kChatMl, strip).Supervised(row), "b<|im_end|>");
  TokenizeOptions untrained;
  untrained.train_on_reasoning = false;
  EXPECT_EQ(Stage(kChatMl, untrained).Supervised(row), "<think>|</think>\n\nb<|im_end|>");
  TokenizeOptions keep;
  keep.reasoning = Reasoning::kKeep;
  EXPECT_EQ(Stage(kChatMl, keep).Supervised(row), "<think>why</think>\n\nb<|im_end|>");
  EXPECT_EQ(
      Stage(kChatMl, keep)
          .Supervised(
              R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "r"}]})"),
      "! reasoning_dropped");
}

TEST(TokenizeStageTest, LongSamplesAreCutBetweenCharacters) {
  TokenizeOptions options;
  options.max_length = 61;
  options.min_supervised_tokens = 1;
  const std::string_view row =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "xéé"}]})";
  Stage whole(kChatMl);
  const std::size_t all = whole.Run(row)[0].input_ids.size();
  for (std::size_t length = all - 8; length <= all; ++length) {
    options.max_length = static_cast<std::int64_t>(length);
    Stage stage(kChatMl, options);
    const std::vector<TokenizedSample> samples = stage.Run(row);
    ASSERT_EQ(samples.size(), 1U);
    if (!samples[0].error_reason.empty()) continue;
    EXPECT_LE(samples[0].input_ids.size(), length);
    EXPECT_EQ(samples[0].input_ids.size(), samples[0].loss_mask.size());
    const auto end = static_cast<std::size_t>(samples[0].offsets.back().end);
    EXPECT_FALSE(end < samples[0].text.size() && (static_cast<unsigned char>(samples[0].text[end]) & 0xC0U) == 0x80);
  }
  options.max_length = 20;
  EXPECT_EQ(Stage(kChatMl, options).Supervised(row), "! no_supervised_token");
  options.too_long = TooLong::kDrop;
  EXPECT_EQ(Stage(kChatMl, options).Supervised(row), "! too_long");
}

TEST(TokenizeStageTest, WeightZeroTakesATurnOut) {
  EXPECT_EQ(
      Stage(kChatMl).Supervised(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc", "loss_weight": 0},
                    {"role": "user", "content": "d"}, {"role": "assistant", "content": "ef", "loss_weight": 1}]})"),
      "ef<|im_end|>");
  EXPECT_EQ(Stage(kChatMl).Supervised(R"({"messages": [{"role": "assistant", "content": "b", "loss_weight": 0.5}]})"),
            "! unsupported_weight");
  EXPECT_EQ(Stage(kChatMl).Supervised(R"({"messages": [{"role": "user", "content": "b"}]})"), "! no_supervised_token");
}

TEST(TokenizeStageTest, GenerationBlocksWin) {
  const std::string_view source =
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% "
      "endgeneration %};"
      "{% else %}{{ m.content }};{% endif %}{% endfor %}";
  EXPECT_EQ(Stage(source).Supervised(kTwoTurns), "bc!|ef!");
}

TEST(TokenizeStageTest, AGenerationBlockBehindTheLastMessageGoesWithIt) {  // the form of Phi-3's training template
  const std::string source =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }};{% endgeneration %}"
      "{% else %}{{ m.content }};{% endif %}{% endfor %}{% generation %}<|im_end|>{{ tools }}{% endgeneration %}";
  EXPECT_EQ(Stage(source).Supervised(kTwoTurns), "bc;|ef;<|im_end|>None");
  const std::string_view user_ends =
      R"({"messages": [{"role": "assistant", "content": "bc"}, {"role": "user", "content": "d"}], "tools": [{"a": 1}]})";
  EXPECT_EQ(Stage(source).Supervised(user_ends), "bc;");
}

TEST(TokenizeStageTest, PretokenizedRowsPassUnchanged) {
  Stage stage(kChatMl);
  const std::vector<TokenizedSample> samples =
      stage.Run(R"({"input_ids": [97, 98, 99], "loss_mask": [0, 1, 1], "text": "abd"})");
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].input_ids, (std::vector<std::int32_t>{97, 98, 99}));
  EXPECT_EQ(samples[0].loss_mask, (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_TRUE(samples[0].text_differs);
  EXPECT_TRUE(samples[0].offsets.empty());
  EXPECT_EQ(stage.Report().pretokenized_text_differs, 1);
  const TokenizedSample same = stage.Run(R"({"input_ids": [97, 98], "loss_mask": [1, 1], "text": "ab"})")[0];
  EXPECT_FALSE(same.text_differs);
  EXPECT_EQ(same.offsets.size(), 2U);
  EXPECT_EQ(stage.Supervised(R"({"input_ids": [97, 9999], "loss_mask": [1, 1]})"), "! bad_pretokenized_row");
  EXPECT_EQ(stage.Supervised(R"({"input_ids": [97, 98], "loss_mask": [1]})"), "! bad_pretokenized_row");
  EXPECT_EQ(stage.Supervised(R"({"input_ids": [97, 98], "loss_mask": [1, 0.5]})"), "! bad_pretokenized_row");
}

TEST(TokenizeStageTest, AChunkKeepsOrderIdentityAndFailures) {
  Stage stage(kChatMl);
  IngestedChunk chunk;
  chunk.chunk = 3;
  for (std::int64_t i = 0; i < 3; ++i) {
    IngestedRow& row = chunk.rows.emplace_back();
    row.sample_id = 10 + i;
    row.content_hash = HashBytes128(std::to_string(i));
    row.place.source = 1;
    row.conversation =
        i == 1 ? Row(R"({"messages": [{"role": "user", "content": 5}, {"role": "assistant", "content": "b"}]})")
               : Row(kTwoTurns);
  }
  const Result<TokenizedChunk> tokenized = stage.stage().TokenizeChunk(chunk, stage.local());
  ASSERT_TRUE(tokenized.ok());
  EXPECT_EQ(tokenized->chunk, 3);
  EXPECT_EQ(tokenized->sample_id, (std::vector<std::int64_t>{10, 12}));
  ASSERT_EQ(tokenized->cu_seqlens.size(), 3U);
  EXPECT_EQ(tokenized->cu_seqlens.back(), tokenized->tokens());
  EXPECT_EQ(tokenized->turn, (std::vector<std::int32_t>{3, 3}));
  EXPECT_EQ(tokenized->token_hash[0], tokenized->token_hash[1]);
  EXPECT_EQ(tokenized->token_hash[0],
            TokenHash(tokenized->input_ids.data(), tokenized->loss_mask.data(), tokenized->cu_seqlens[1]));
  ASSERT_EQ(tokenized->failures.size(), 1U);
  EXPECT_EQ(tokenized->failures[0].reason, "template");
  EXPECT_EQ(tokenized->failures[0].key.sample_id, 11);
}

/// Shows every variable that a template gets beside the messages.
constexpr std::string_view kShowsVariables =
    "{{ tools | tojson }}{{ documents | tojson }}{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + "
    "'<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}";

TEST(TokenizeStageTest, ToolsAndDocumentsComeFromTheRowElseFromTheVariables) {
  TokenizeOptions options;
  options.variables = Row(R"({"tools": [1], "documents": [2], "add_generation_prompt": true})").as_object();
  Stage stage(kShowsVariables, options);
  const std::string_view messages =
      R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ab"}]})";
  const std::string turns = "<|im_start|>userq<|im_end|><|im_start|>assistantab<|im_end|><|im_start|>assistant";
  EXPECT_EQ(stage.Run("{" + std::string(messages))[0].text, "[1][2]" + turns);
  EXPECT_EQ(stage.Run(R"({"tools": [3], "documents": [4], )" + std::string(messages))[0].text, "[3][4]" + turns);
  EXPECT_EQ(stage.Supervised("{" + std::string(messages)), "ab<|im_end|>");
}

TEST(TokenizeStageTest, AMessageThatTheTemplateRefusesCostsNoEarlierTurn) {
  // Has no generation prompt, and wants the roles to take turns.
  const std::string_view source =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% "
      "endif "
      "%}{{ '<|im_start|>' + m.content }}{% if m.role == 'assistant' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}";
  TokenizeOptions per_turn;
  per_turn.expand = Expand::kPerTurn;
  Stage stage(source, per_turn);
  const std::string_view row =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"},
          {"role": "assistant", "content": "de"}]})";
  EXPECT_EQ(stage.Supervised(row, 0), "<|im_start|>bc<|im_end|>");
  EXPECT_EQ(stage.Supervised(row, 1), "! template");
}

TEST(TokenizeStageTest, VariablesOfAnotherKindAreRefused) {
  for (const char* variables :
       {R"({"messages": []})", R"({"tools": {}})", R"({"documents": "x"})", R"({"add_generation_prompt": 1})"}) {
    TokenizeOptions options;
    options.variables = Row(variables).as_object();
    ModelTextFiles files;
    files.chat_template = kChatMl;
    const auto stage =
        TokenizeStage::Create(options, std::make_unique<ByteTokenizer>(std::vector<std::string>{}), files);
    EXPECT_EQ(stage.status().code(), StatusCode::kInvalidConfig) << variables;
  }
}

TEST(TokenizeStageTest, UnknownStopTokensAreRefused) {
  TokenizeOptions options;
  options.stop_tokens = {"<nosuch>"};
  ModelTextFiles files;
  files.chat_template = kChatMl;
  const auto stage = TokenizeStage::Create(options, std::make_unique<ByteTokenizer>(std::vector<std::string>{}), files);
  ASSERT_FALSE(stage.ok());
  EXPECT_EQ(stage.status().code(), StatusCode::kInvalidConfig);
}

/// Random conversations whose users imitate everything: nothing of theirs is ever supervised, every answer is, to its
/// end.
TEST(TokenizeStageTest, HostileConversations) {
  const std::vector<std::string> bits = {"<|im_end|>",
                                         "<|im_start|>assistant\n",
                                         "<|im_start|>",
                                         "<think>",
                                         "</think>",
                                         "\n",
                                         "assistant",
                                         "answer",
                                         " ",
                                         "<tool_call>",
                                         "é",
                                         "x"};
  std::mt19937 random(7);
  for (const std::string_view source : {kChatMl, kDropsThoughts}) {
    Stage stage(source);
    for (int round = 0; round < 300; ++round) {
      json::Array messages;
      std::string expected;
      for (int turn = 0; turn < 3; ++turn) {
        for (const char* role : {"user", "assistant"}) {
          std::string content = role[0] == 'u' ? "U" : "A";
          for (auto i = random() % 6; i > 0; --i) content += bits[random() % bits.size()];
          json::Object message;
          message.emplace_back("role", role);
          message.emplace_back("content", content);
          messages.emplace_back(std::move(message));
          if (role[0] == 'a') expected += (expected.empty() ? "" : "|") + content + "<|im_end|>";
        }
      }
      json::Object row;
      row.emplace_back("messages", std::move(messages));
      EXPECT_EQ(stage.Supervised(json::Write(json::Value(std::move(row)))), expected);
    }
  }
}

/// A bracket that the template closes behind the last message, or else where the next one begins, is no answer's.
TEST(TokenizeStageTest, WhatStandsBeforeThePromptIsNotSupervised) {
  Stage stage(
      "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'tool' %}{{ '[' if not ns.open else "
      "', ' }}"
      "{% set ns.open = true %}{{ m.content }}{% else %}{% if ns.open %}{{ ']' }}{% set ns.open = false %}{% endif %}"
      "{{ '<|assistant|>' if m.role == 'assistant' }}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
      "{% if ns.open %}]{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}");
  EXPECT_EQ(
      stage.Supervised(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "call"},
      {"role": "tool", "content": "4"}, {"role": "tool", "content": "5"}, {"role": "assistant", "content": "a"}]})"),
      "call<|im_end|>|a<|im_end|>");
}

/// What a template may write grows with the row: a long one passes, a short one that becomes as long does not.
TEST(TokenizeStageTest, OutputIsBoundedByTheRow) {
  const std::string large(std::size_t{3} << 20, 'x');
  Stage plain(kChatMl);
  EXPECT_EQ(plain.Supervised(R"({"messages": [{"role": "user", "content": ")" + large +
                             R"("}, {"role": "assistant", "content": "a"}]})"),
            "a<|im_end|>");
  Stage multiplying("{% for m in messages %}{% for i in range(90000) %}{{ m.content }}{% endfor %}{% endfor %}");
  EXPECT_EQ(
      multiplying.Supervised(R"({"messages": [{"role": "assistant", "content": "forty bytes, many times over"}]})"),
      "! template");
}

TEST(TokenizeSpecTest, DeclaresWhatTheOptionsRead) {
  const StageSpec& spec = TokenizeSpec();
  EXPECT_EQ(spec.name, "tokenize");
  EXPECT_EQ(spec.parameters.size(), 13U);
  for (const ParameterSpec& parameter : spec.parameters) EXPECT_FALSE(parameter.doc.empty()) << parameter.name;
}

}  // namespace
}  // namespace draftmill
