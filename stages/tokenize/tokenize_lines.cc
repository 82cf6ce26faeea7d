// Renders and tokenizes rows from standard input, one JSON object a line, for the oracle tests (tests/oracle).
//
//   {"config": {"tokenizer": FILE, "template": TEXT, "variables": {}, "stop_tokens": [], "canonical": false, ...}}
//   {"row": {"messages": [...]}}                    -> [{"text", ...} | {"error", ...}] (sample_json.h), or {"error"}
//   {"render": {...}, "prompt": false, "messages": 3} -> {"text"} | {"error"}     (no tokenizer needed)
#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "stages/ingest/conversation.h"
#include "stages/tokenize/sample_json.h"
#include "stages/tokenize/tokenize_stage.h"

namespace draftmill {
namespace {

std::string TextOr(const json::Value& object, std::string_view name, std::string fallback) {
  const json::Value* value = object.Find(name);
  return value != nullptr && value->is_string() ? value->as_string() : fallback;
}

bool FlagOr(const json::Value& object, std::string_view name, bool fallback) {
  const json::Value* value = object.Find(name);
  return value != nullptr && value->is_bool() ? value->as_bool() : fallback;
}

TokenizeOptions OptionsFrom(const json::Value& config) {
  TokenizeOptions options;
  if (const json::Value* variables = config.Find("variables")) options.variables = variables->as_object();
  options.template_now = TextOr(config, "now", options.template_now);
  if (const json::Value* length = config.Find("max_length"); length != nullptr && length->is_integer()) {
    options.max_length = length->as_integer();
  }
  const std::string too_long = TextOr(config, "too_long", "truncate");
  options.too_long =
      too_long == "truncate" ? TooLong::kTruncate : (too_long == "drop" ? TooLong::kDrop : TooLong::kError);
  if (TextOr(config, "train_on", "") == "last_assistant_turn") options.train_on = TrainOn::kLastAssistantTurn;
  const std::string expand = TextOr(config, "expand", "auto");
  options.expand = expand == "auto" ? Expand::kAuto : (expand == "none" ? Expand::kNone : Expand::kPerTurn);
  const std::string special = TextOr(config, "special_in_text", "as_model");
  options.special_in_text = special == "as_model"  ? SpecialInText::kAsModel
                            : special == "as_text" ? SpecialInText::kAsText
                                                   : SpecialInText::kReject;
  const std::string reasoning = TextOr(config, "reasoning", "as_template");
  options.reasoning =
      reasoning == "strip" ? Reasoning::kStrip : (reasoning == "keep" ? Reasoning::kKeep : Reasoning::kAsTemplate);
  options.supervise_stop_token = FlagOr(config, "supervise_stop_token", true);
  options.train_on_reasoning = FlagOr(config, "train_on_reasoning", true);
  if (const json::Value* tokens = config.Find("stop_tokens")) {
    for (const json::Value& token : tokens->as_array()) options.stop_tokens.push_back(token.as_string());
  }
  if (const json::Value* least = config.Find("min_supervised_tokens"))
    options.min_supervised_tokens = least->as_integer();
  return options;
}

json::Value ErrorLine(const Status& status) {
  json::Object line;
  line.emplace_back("error", status.message());
  return json::Value(std::move(line));
}

/// What the last `config` line set up.
class Driver {
 public:
  json::Value Answer(const json::Value& line) {
    if (const json::Value* config = line.Find("config")) return Configure(*config);
    if (const json::Value* row = line.Find("row")) return Tokenize(*row);
    if (const json::Value* conversation = line.Find("render")) return Render(*conversation, line);
    return ErrorLine(InvalidInput("unknown line"));
  }

 private:
  json::Value Configure(const json::Value& config) {
    stage_.reset();
    renderer_.reset();
    canonical_ = FlagOr(config, "canonical", false);
    const Status status = SetUp(config);
    return status.ok() ? json::Value(json::Object{}) : ErrorLine(status);
  }

  Status SetUp(const json::Value& config) {
    const TokenizeOptions options = OptionsFrom(config);
    const std::string source = TextOr(config, "template", "");
    if (!config.Find("tokenizer")) {
      DRAFTMILL_ASSIGN_OR_RETURN(const jinja::DateTime now, jinja::ParseDateTime(options.template_now));
      DRAFTMILL_ASSIGN_OR_RETURN(auto chat_template, jinja::ChatTemplate::Parse(source));
      DRAFTMILL_ASSIGN_OR_RETURN(renderer_,
                                 ConversationRenderer::Create(std::move(chat_template), {options.variables, now, {}}));
      scratch_ = renderer_->MakeScratch();
      return OkStatus();
    }
    DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer,
                               Tokenizer::LoadFile(TextOr(config, "tokenizer", "")));
    ModelTextFiles files;
    files.chat_template = source;
    DRAFTMILL_ASSIGN_OR_RETURN(stage_, TokenizeStage::Create(options, std::move(tokenizer), std::move(files)));
    local_ = stage_->MakeLocalState();
    return OkStatus();
  }

  json::Value Tokenize(const json::Value& row) {
    if (stage_ == nullptr) return ErrorLine(InvalidInput("no config with a tokenizer"));
    json::Value conversation = row;
    if (canonical_ && row.Find("text") == nullptr) {
      RowRefusal refusal;
      Result<json::Value> canonical = CanonicalConversation(row, RowForm::kAuto, true, &refusal);
      if (!canonical.ok()) return ErrorLine(InvalidInput(refusal.reason + ": " + canonical.status().message()));
      conversation = std::move(canonical).value();
    }
    const Result<std::vector<TokenizedSample>> samples = stage_->TokenizeRow(conversation, *local_);
    if (!samples.ok()) return ErrorLine(samples.status());
    json::Array lines;
    for (const TokenizedSample& sample : *samples) lines.emplace_back(SampleAsJson(sample));
    return json::Value(std::move(lines));
  }

  json::Value Render(const json::Value& conversation, const json::Value& line) {
    if (renderer_ == nullptr) return ErrorLine(InvalidInput("no config without a tokenizer"));
    Status status = renderer_->Load(conversation, *scratch_);
    RenderedText rendered;
    RenderRequest request{conversation.Find("messages")->as_array().size(), FlagOr(line, "prompt", false)};
    if (const json::Value* messages = line.Find("messages"))
      request.messages = static_cast<std::size_t>(messages->as_integer());
    if (status.ok()) status = renderer_->Render(*scratch_, request, rendered);
    if (!status.ok()) return ErrorLine(status);
    json::Object answer;
    answer.emplace_back("text", rendered.text);
    return json::Value(std::move(answer));
  }

  bool canonical_ = false;
  std::unique_ptr<const TokenizeStage> stage_;
  std::unique_ptr<TokenizeStage::LocalState> local_;
  std::unique_ptr<const ConversationRenderer> renderer_;
  std::unique_ptr<ConversationRenderer::Scratch> scratch_;
};

int Run() {
  std::ios::sync_with_stdio(false);
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    const Result<json::Value> parsed = json::Parse(line);
    const json::Value answer = parsed.ok() ? driver.Answer(*parsed) : ErrorLine(parsed.status());
    std::cout << json::Write(answer) << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace draftmill

int main() { return draftmill::Run(); }
