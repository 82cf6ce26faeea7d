// The declaration of the tokenize stage: what pipeline.yaml may say under `tokenize:`.
#include "stages/stage_spec.h"
#include "stages/template/strftime.h"
#include "stages/tokenize/tokenize_options.h"

namespace draftmill {
namespace {

ParameterSpec Choice(std::string name, std::string doc, std::string fallback, std::vector<std::string> choices) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.type = ParameterType::kChoice;
  spec.doc = std::move(doc);
  spec.default_yaml = std::move(fallback);
  spec.choices = std::move(choices);
  return spec;
}

ParameterSpec Plain(std::string name, ParameterType type, std::string doc, std::string fallback) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.type = type;
  spec.doc = std::move(doc);
  spec.default_yaml = std::move(fallback);
  return spec;
}

ParameterSpec TemplateNow() {
  ParameterSpec spec =
      Plain("template_now", ParameterType::kText,
            "The moment that strftime_now shows, as 2025-03-09 or 2025-03-09T07:05:03. It is fixed, so that the "
            "same input gives the same bytes.",
            "2025-01-01T00:00:00");
  spec.check = [](std::string_view text) { return jinja::ParseDateTime(text).status(); };
  return spec;
}

ParameterSpec MaxLength() {
  ParameterSpec spec =
      Plain("max_length", ParameterType::kInteger,
            "Most tokens of a sample. `model` means the limit of positions that config.json states.", "model");
  spec.words = {"model"};
  spec.minimum = 1;
  spec.maximum = 1 << 24;
  return spec;
}

ParameterSpec Template() {
  ParameterSpec spec =
      Plain("template", ParameterType::kPath,
            "A chat template to use instead of the model's own: a file of Jinja text, or a "
            "tokenizer_config.json or chat_template.json that holds one. `model` looks for chat_template.jinja, "
            "then tokenizer_config.json, then chat_template.json in the model folder.",
            "model");
  spec.words = {"model"};
  // The bytes of the template are an input of the stage; where it lies does not matter.
  spec.in_fingerprint = false;
  return spec;
}

ParameterSpec MinSupervisedTokens() {
  ParameterSpec spec =
      Plain("min_supervised_tokens", ParameterType::kInteger,
            "A sample with fewer supervised tokens, counted after truncation, goes to quarantine.", "2");
  spec.minimum = 1;
  spec.maximum = 1 << 24;
  return spec;
}

std::vector<ParameterSpec> Parameters() {
  return {
      Template(),
      Plain("variables", ParameterType::kMapping,
            "Variables of the chat template, e.g. {enable_thinking: false}. bos_token, eos_token and the other special "
            "tokens come from tokenizer_config.json unless they are set here; `tools` and `documents` stand for rows "
            "that have none; `add_generation_prompt: true` ends every sample with an unsupervised prompt.",
            "{}"),
      TemplateNow(),
      MaxLength(),
      Choice("too_long",
             "What becomes of a sample longer than max_length: `truncate` cuts it after a whole character, `drop` and "
             "`error` "
             "send it to quarantine; with `error` the message says how long it is.",
             "truncate", {"truncate", "drop", "error"}),
      Choice("train_on", "Which of the assistant's turns are supervised.", "all_assistant_turns",
             {"all_assistant_turns", "last_assistant_turn"}),
      Choice(
          "expand",
          "`none` makes one sample of a conversation; `per_turn` one for each assistant turn, rendered as it would be "
          "generated, in which only that turn is supervised; `auto` is per_turn where the template drops reasoning "
          "that "
          "the row carries, else none.",
          "auto", {"auto", "none", "per_turn"}),
      Choice("reasoning",
             "`as_template` renders what the template renders of the row's reasoning; `keep` refuses a sample of whose "
             "supervised turns the template drops reasoning; `strip` takes all reasoning out of the row first.",
             "as_template", {"as_template", "keep", "strip"}),
      Plain("train_on_reasoning", ParameterType::kBool,
            "Whether the assistant's reasoning is supervised; the tags round it always are.", "true"),
      Plain("supervise_stop_token", ParameterType::kBool, "Whether the stop token that ends a turn is supervised.",
            "true"),
      Plain("stop_tokens", ParameterType::kTextList,
            "Stop tokens in addition to those that config.json, generation_config.json and the tokenizer name.", "[]"),
      MinSupervisedTokens(),
      Choice("special_in_text",
             "Control tokens written inside a message's text, such as <|im_end|>: `as_model` reads them as the model's "
             "own "
             "code does, as the control token; `as_text` as ordinary text; `reject` sends the row to quarantine.",
             "as_model", {"as_model", "as_text", "reject"}),
  };
}

template <typename Enum>
Enum ChoiceOf(const ParameterValues& values, const std::string& name,
              const std::vector<std::pair<std::string_view, Enum>>& table) {
  for (const auto& [word, value] : table) {
    if (values.Text(name) == word) return value;
  }
  DRAFTMILL_CHECK(false, "the choice of `" + name + "` was not checked");
  return table.front().second;
}

}  // namespace

const StageSpec& TokenizeSpec() {
  static const StageSpec spec = {
      .name = "tokenize",
      .version = 4,
      .doc =
          "Renders every conversation with the target model's own chat template, turns the text into token ids and "
          "marks "
          "the tokens that the model would have had to emit.",
      .inputs = {"ingest", "model.tokenizer", "model.template"},
      .output = "corpus/",
      .parameters = Parameters(),
  };
  return spec;
}

TokenizeOptions TokenizeOptions::From(const ParameterValues& values) {
  TokenizeOptions options;
  if (!values.IsWord("template", "model")) options.template_file = values.Text("template");
  options.variables = values.Get("variables").as_object();
  options.template_now = values.Text("template_now");
  if (!values.IsWord("max_length", "model")) options.max_length = values.Integer("max_length");
  options.too_long = ChoiceOf<TooLong>(
      values, "too_long", {{"truncate", TooLong::kTruncate}, {"drop", TooLong::kDrop}, {"error", TooLong::kError}});
  options.train_on = ChoiceOf<TrainOn>(
      values, "train_on",
      {{"all_assistant_turns", TrainOn::kAllAssistantTurns}, {"last_assistant_turn", TrainOn::kLastAssistantTurn}});
  options.expand = ChoiceOf<Expand>(values, "expand",
                                    {{"auto", Expand::kAuto}, {"none", Expand::kNone}, {"per_turn", Expand::kPerTurn}});
  options.reasoning = ChoiceOf<Reasoning>(
      values, "reasoning",
      {{"as_template", Reasoning::kAsTemplate}, {"keep", Reasoning::kKeep}, {"strip", Reasoning::kStrip}});
  options.train_on_reasoning = values.Bool("train_on_reasoning");
  options.supervise_stop_token = values.Bool("supervise_stop_token");
  for (const json::Value& token : values.Get("stop_tokens").as_array())
    options.stop_tokens.push_back(token.as_string());
  options.min_supervised_tokens = values.Integer("min_supervised_tokens");
  options.special_in_text = ChoiceOf<SpecialInText>(
      values, "special_in_text",
      {{"as_model", SpecialInText::kAsModel}, {"as_text", SpecialInText::kAsText}, {"reject", SpecialInText::kReject}});
  return options;
}

}  // namespace draftmill
