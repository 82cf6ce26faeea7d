#include "stages/tokenize/tokenize_stage.h"

#include <algorithm>
#include <utility>

namespace draftmill {
namespace {

using jinja::FieldKind;
using jinja::FieldSlot;

std::int64_t CountOccurrences(std::string_view text, std::string_view wanted) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + wanted.size()))
    ++count;
  return count;
}

/// Whether a failure is the row's, so that the next row goes on; any other one ends the run.
bool IsOfTheRow(const Status& status) {
  return status.code() == StatusCode::kInvalidInput || status.code() == StatusCode::kUnsupported;
}

/// loss_weight 0 takes a message out of the supervision; ingest lets only 0 and 1 pass.
Result<bool> IsTrainedOn(const json::Value& message) {
  const json::Value* weight = message.Find("loss_weight");
  if (weight == nullptr) return true;
  if (weight->is_integer() && (weight->as_integer() == 0 || weight->as_integer() == 1))
    return weight->as_integer() == 1;
  return InvalidInput("loss_weight must be 0 or 1; fractional weights are not supported");
}

bool IsReasoningField(std::string_view name) {
  return name == "reasoning_content" || name == "reasoning" || name == "thinking";
}

/// The content without its first <think>...</think> and the white space after it.
void StripThinking(json::Value& content) {
  std::string& text = content.as_string();
  const ReasoningRange range = FindReasoning(text);
  if (range.end == 0) return;
  static constexpr std::string_view kOpen = "<think>";
  static constexpr std::string_view kClose = "</think>";
  const std::size_t begin = range.begin >= kOpen.size() ? range.begin - kOpen.size() : 0;
  std::size_t end = range.end + kClose.size();
  while (end < text.size() && (text[end] == '\n' || text[end] == ' ')) ++end;
  text.erase(begin, end - begin);
}

/// The row without the assistant's reasoning.
json::Value WithoutReasoning(json::Value row) {
  json::Value* messages = row.Find("messages");
  if (messages == nullptr || !messages->is_array()) return row;
  for (json::Value& message : messages->as_array()) {
    if (!message.is_object()) continue;
    json::Object& fields = message.as_object();
    std::erase_if(fields, [](const json::Member& field) { return IsReasoningField(field.first); });
    const json::Value* role = message.Find("role");
    json::Value* content = message.Find("content");
    const bool is_assistant = role != nullptr && role->is_string() && role->as_string() == "assistant";
    if (is_assistant && content != nullptr && content->is_string()) StripThinking(*content);
  }
  return row;
}

}  // namespace

// ---- set-up ---------------------------------------------------------------------------------------------------------

TokenizeStage::~TokenizeStage() = default;

Result<std::unique_ptr<const TokenizeStage>> TokenizeStage::Create(const TokenizeOptions& options,
                                                                   const Inputs& inputs) {
  if (inputs.model_folder.empty() && inputs.tokenizer_file.empty()) {
    return InvalidConfig("neither a model folder nor a tokenizer file is named");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer,
                             inputs.tokenizer_file.empty() ? Tokenizer::LoadFolder(inputs.model_folder)
                                                           : Tokenizer::LoadFile(inputs.tokenizer_file));
  DRAFTMILL_ASSIGN_OR_RETURN(ModelTextFiles files,
                             ReadModelTextFiles(inputs.model_folder, options.template_file, *tokenizer));
  return Create(options, std::move(tokenizer), std::move(files));
}

Result<std::unique_ptr<const TokenizeStage>> TokenizeStage::Create(const TokenizeOptions& options,
                                                                   std::unique_ptr<const Tokenizer> tokenizer,
                                                                   ModelTextFiles files) {
  std::unique_ptr<TokenizeStage> stage(new TokenizeStage());
  stage->options_ = options;
  stage->tokenizer_ = std::move(tokenizer);
  stage->files_ = std::move(files);
  stage->max_length_ = options.max_length ? options.max_length : stage->files_.max_length;
  DRAFTMILL_RETURN_IF_ERROR(stage->ResolveStopTokens());
  DRAFTMILL_RETURN_IF_ERROR(stage->PrepareTemplates());
  stage->is_special_.assign(static_cast<std::size_t>(stage->tokenizer_->id_limit()), false);
  for (const AddedToken& token : stage->tokenizer_->added_tokens()) {
    if (token.special && token.id >= 0 && token.id < stage->tokenizer_->id_limit()) {
      stage->is_special_[static_cast<std::size_t>(token.id)] = true;
    }
  }
  return std::unique_ptr<const TokenizeStage>(std::move(stage));
}

Status TokenizeStage::ResolveStopTokens() {
  std::vector<std::int32_t>& ids = files_.stop_tokens;
  for (const std::string& token : options_.stop_tokens) {
    const std::optional<std::int32_t> id = tokenizer_->TokenToId(token);
    if (!id) return InvalidConfig("tokenize.stop_tokens: the tokenizer has no token '" + token + "'");
    ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return OkStatus();
}

Status TokenizeStage::PrepareTemplates() {
  if (files_.chat_template.empty()) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const jinja::DateTime now,
                             jinja::ParseDateTime(options_.template_now).WithContext("tokenize.template_now"));
  ConversationRenderer::Options options{options_.variables, now, {}};
  for (const json::Member& token : files_.special_tokens) {
    const bool is_set = std::any_of(options.variables.begin(), options.variables.end(),
                                    [&token](const json::Member& variable) { return variable.first == token.first; });
    if (!is_set) options.variables.push_back(token);
  }
  const auto prepare = [&](const std::string& source) -> Result<std::unique_ptr<const ConversationRenderer>> {
    DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<const jinja::ChatTemplate> chat_template,
                               jinja::ChatTemplate::Parse(source));
    return ConversationRenderer::Create(std::move(chat_template), options);
  };
  DRAFTMILL_ASSIGN_OR_RETURN(renderer_, prepare(files_.chat_template).WithContext(files_.template_place));
  if (files_.tool_template) {
    DRAFTMILL_ASSIGN_OR_RETURN(
        tool_renderer_, prepare(*files_.tool_template).WithContext(files_.template_place + ": template 'tool_use'"));
  }
  return OkStatus();
}

std::unique_ptr<TokenizeStage::LocalState> TokenizeStage::MakeLocalState() const {
  auto local = std::make_unique<LocalState>();
  local->tokenizer_scratch_ = tokenizer_->MakeScratch();
  if (renderer_ != nullptr) local->scratch_ = renderer_->MakeScratch();
  if (tool_renderer_ != nullptr) local->tool_scratch_ = tool_renderer_->MakeScratch();
  return local;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

Result<TokenizedChunk> TokenizeStage::TokenizeChunk(const IngestedChunk& chunk, LocalState& local) const {
  TokenizedChunk out;
  out.chunk = chunk.chunk;
  out.cu_seqlens.push_back(0);
  for (const IngestedRow& row : chunk.rows) {
    const auto collect = [&](const SampleView& sample) {
      if (!sample.reason.empty()) {
        out.failures.push_back({"tokenize",
                                std::string(sample.reason),
                                std::string(sample.message),
                                row.place,
                                {row.sample_id, sample.variant}});
        return;
      }
      out.input_ids.insert(out.input_ids.end(), sample.ids.begin(), sample.ids.end());
      out.loss_mask.insert(out.loss_mask.end(), sample.mask.begin(), sample.mask.end());
      out.cu_seqlens.push_back(out.tokens());
      out.sample_id.push_back(row.sample_id);
      out.variant.push_back(sample.variant);
      out.content_hash.push_back(row.content_hash);
      out.token_hash.push_back(
          TokenHash(sample.ids.data(), sample.mask.data(), static_cast<std::int64_t>(sample.ids.size())));
      out.source.push_back(row.place.source);
      out.turn.push_back(sample.turn);
    };
    DRAFTMILL_RETURN_IF_ERROR(ProcessRow(row.conversation, local, collect));
  }
  return out;
}

Result<std::vector<TokenizedSample>> TokenizeStage::TokenizeRow(const json::Value& row, LocalState& local) const {
  std::vector<TokenizedSample> samples;
  const auto collect = [&samples](const SampleView& view) {
    TokenizedSample& sample = samples.emplace_back();
    sample.variant = view.variant;
    sample.turn = view.turn;
    sample.text = view.text;
    sample.input_ids.assign(view.ids.begin(), view.ids.end());
    sample.loss_mask.assign(view.mask.begin(), view.mask.end());
    for (std::size_t i = 0; view.encoding != nullptr && i < view.ids.size(); ++i) {
      sample.offsets.push_back({view.encoding->begin[i], view.encoding->end[i]});
    }
    sample.text_differs = view.text_differs;
    sample.error_reason = view.reason;
    sample.error_message = view.message;
  };
  DRAFTMILL_RETURN_IF_ERROR(ProcessRow(row, local, collect));
  return samples;
}

Status TokenizeStage::ProcessRow(const json::Value& row, LocalState& local, const Sink& sink) const {
  ++local.report_.rows;
  local.reason_.clear();
  Status status;
  if (row.Find("input_ids") != nullptr)
    status = ProcessPretokenized(row, local, sink);
  else if (row.Find("messages") == nullptr && row.Find("text") != nullptr)
    status = ProcessText(row, local, sink);
  else if (options_.reasoning == Reasoning::kStrip)
    status = ProcessConversation(WithoutReasoning(row), local, sink);
  else
    status = ProcessConversation(row, local, sink);
  if (status.ok() || !IsOfTheRow(status)) return status;
  SampleView failure;
  failure.reason = local.reason_.empty() ? std::string_view("template") : std::string_view(local.reason_);
  failure.message = status.message();
  sink(failure);
  return OkStatus();
}

Status TokenizeStage::ProcessText(const json::Value& row, LocalState& local, const Sink& sink) const {
  const json::Value& text = *row.Find("text");
  if (!text.is_string()) {
    local.reason_ = "wrong_type";
    return InvalidInput("text must be text, not " + std::string(text.KindName()));
  }
  local.reason_ = "tokenizer";
  DRAFTMILL_RETURN_IF_ERROR(tokenizer_->Encode(text.as_string(), {}, *local.tokenizer_scratch_, local.encoding_));
  local.mask_ = {};
  local.mask_.mask.assign(local.encoding_.ids.size(), 0);
  SampleView view;
  view.text = text.as_string();
  view.ids = local.encoding_.ids;
  view.mask = local.mask_.mask;
  view.encoding = &local.encoding_;
  sink(view);
  return OkStatus();
}

Status TokenizeStage::ProcessConversation(const json::Value& row, LocalState& local, const Sink& sink) const {
  if (renderer_ == nullptr) {
    return InvalidConfig(
        "the model has no chat template; name one with tokenize.template, or --template of `draftmill tokenize`");
  }
  const bool with_tools = tool_renderer_ != nullptr && renderer_->OfRowOrConfigured(row, "tools") != nullptr;
  const ConversationRenderer& renderer = with_tools ? *tool_renderer_ : *renderer_;
  local.current_ = with_tools ? local.tool_scratch_.get() : local.scratch_.get();
  local.reason_ = "template";
  DRAFTMILL_RETURN_IF_ERROR(renderer.Load(row, *local.current_));
  const json::Array& messages = row.Find("messages")->as_array();
  std::vector<std::int32_t> turns;
  for (std::size_t i = messages.size(); i > 0; --i) {
    if (local.current_->roles()[i - 1] != MessageRole::kAssistant) continue;
    local.reason_ = "unsupported_weight";
    DRAFTMILL_ASSIGN_OR_RETURN(const bool is_trained_on, IsTrainedOn(messages[i - 1]));
    if (is_trained_on) turns.push_back(static_cast<std::int32_t>(i - 1));
    if (options_.train_on == TrainOn::kLastAssistantTurn) break;
  }
  std::reverse(turns.begin(), turns.end());
  bool per_turn = options_.expand == Expand::kPerTurn;
  if (options_.expand == Expand::kAuto) {
    local.reason_ = "template";
    DRAFTMILL_ASSIGN_OR_RETURN(per_turn, DropsReasoning(renderer, local));
  }
  if (turns.empty()) {
    local.reason_ = "no_supervised_token";
    ++local.report_.samples_without_supervision;
    return InvalidInput("no message of the assistant is to be trained on");
  }
  local.report_.rows_per_turn += per_turn ? 1 : 0;
  const std::size_t samples = per_turn ? turns.size() : 1;
  for (std::size_t variant = 0; variant < samples; ++variant) {
    const std::vector<std::int32_t> supervised = per_turn ? std::vector<std::int32_t>{turns[variant]} : turns;
    const std::size_t count = per_turn ? static_cast<std::size_t>(turns[variant]) + 1 : messages.size();
    const Status status = MakeSample(count, per_turn ? count - 1 : 0, supervised, renderer, local);
    SampleView view;
    view.variant = static_cast<std::int32_t>(variant);
    view.turn = supervised.back();
    if (!status.ok()) {
      if (!IsOfTheRow(status)) return status;
      view.reason = local.reason_;
      view.message = status.message();
      sink(view);
      continue;
    }
    view.text = local.rendered_.text;
    view.ids = local.encoding_.ids;
    view.mask = local.mask_.mask;
    view.encoding = &local.encoding_;
    sink(view);
  }
  return OkStatus();
}

Result<bool> TokenizeStage::DropsReasoning(const ConversationRenderer& renderer, LocalState& local) const {
  const std::vector<FieldSlot>& slots = local.current_->slots();
  const auto is_carried = [](const FieldSlot& slot) { return slot.kind == FieldKind::kReasoning && slot.has_text; };
  if (std::none_of(slots.begin(), slots.end(), is_carried)) return false;
  const auto render = [&](std::size_t messages) -> Status {
    DRAFTMILL_RETURN_IF_ERROR(renderer.Render(*local.current_, {messages, false}, local.rendered_));
    local.slot_is_rendered_.assign(slots.size(), false);
    for (const jinja::TextRun& run : local.rendered_.runs) {
      if (run.tag.is_field()) local.slot_is_rendered_[run.tag.slot()] = true;
    }
    return OkStatus();
  };
  DRAFTMILL_RETURN_IF_ERROR(render(local.current_->roles().size()));
  const std::vector<bool> in_full = local.slot_is_rendered_;
  // A template that never shows reasoning shows it no better turn by turn.
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (!is_carried(slots[slot]) || in_full[slot] || slots[slot].message < 0) continue;
    if (!render(static_cast<std::size_t>(slots[slot].message) + 1).ok()) continue;
    if (local.slot_is_rendered_[slot]) return true;
  }
  return false;
}

Status TokenizeStage::MakeSample(std::size_t messages, std::size_t first_counted,
                                 const std::vector<std::int32_t>& turns, const ConversationRenderer& renderer,
                                 LocalState& local) const {
  ConversationRenderer::Scratch& scratch = *local.current_;
  const std::vector<FieldSlot>& slots = scratch.slots();
  const bool by_blocks = renderer.chat_template().has_generation_blocks();
  local.reason_ = "template";
  DRAFTMILL_RETURN_IF_ERROR(renderer.Render(scratch, {messages, renderer.ends_with_prompt()}, local.rendered_));
  std::vector<SupervisedTurn> supervised;
  for (const std::int32_t turn : turns) {
    supervised.push_back({turn, {}});
    if (by_blocks) continue;
    local.reason_ = "generation_prompt";
    DRAFTMILL_ASSIGN_OR_RETURN(
        supervised.back().prompt,
        renderer.PromptAfter(scratch, static_cast<std::size_t>(turn), local.rendered_)
            .WithContext("the messages before message " + std::to_string(turn) + " with add_generation_prompt"));
  }
  CountRendering(first_counted, local, slots);
  DRAFTMILL_RETURN_IF_ERROR(CheckReasoning(turns, local, slots));
  local.plain_ranges_.clear();
  if (options_.special_in_text == SpecialInText::kAsText) {
    std::int64_t begin = 0;
    for (const jinja::TextRun& run : local.rendered_.runs) {
      if (run.tag.is_field() && run.end > begin) {
        if (!local.plain_ranges_.empty() && local.plain_ranges_.back().end == begin)
          local.plain_ranges_.back().end = run.end;
        else
          local.plain_ranges_.push_back({begin, run.end});
      }
      begin = run.end;
    }
  }
  local.reason_ = "tokenizer";
  DRAFTMILL_RETURN_IF_ERROR(
      tokenizer_->Encode(local.rendered_.text, local.plain_ranges_, *local.tokenizer_scratch_, local.encoding_));
  DRAFTMILL_RETURN_IF_ERROR(CheckSpecialTokens(local, slots));
  const LossMaskOptions options{files_.stop_tokens, options_.supervise_stop_token, options_.train_on_reasoning,
                                by_blocks};
  ComputeLossMask(local.rendered_, slots, scratch.roles(), local.encoding_, supervised, options, local.mask_);
  DRAFTMILL_RETURN_IF_ERROR(LimitLength(local));
  const std::int64_t found = local.mask_.supervised_tokens;
  if (found < options_.min_supervised_tokens) {
    local.reason_ = "no_supervised_token";
    ++local.report_.samples_without_supervision;
    return InvalidInput("only " + std::to_string(found) + " of " + std::to_string(local.encoding_.ids.size()) +
                        " tokens are supervised; at least " + std::to_string(options_.min_supervised_tokens) +
                        " must be");
  }
  TokenizeReport& report = local.report_;
  ++report.samples;
  report.tokens += static_cast<std::int64_t>(local.encoding_.ids.size());
  report.supervised_tokens += found;
  report.boundary_tokens += local.mask_.boundary_tokens;
  report.turns_stopped_by_next += local.mask_.turns_stopped_by_next;
  report.turns_without_stop += local.mask_.turns_without_stop;
  const std::string_view text = local.rendered_.text;
  if (CountOccurrences(text, "<think>") != CountOccurrences(text, "</think>")) ++report.unbalanced_think_samples;
  return OkStatus();
}

/// Counts fields of which nothing was rendered, in messages from `first_message` on that belong to the sample.
void TokenizeStage::CountRendering(std::size_t first_message, LocalState& local,
                                   const std::vector<FieldSlot>& slots) const {
  local.slot_is_rendered_.assign(slots.size(), false);
  std::int32_t last_message = -1;
  for (const jinja::TextRun& run : local.rendered_.runs) {
    if (run.tag.is_field()) local.slot_is_rendered_[run.tag.slot()] = true;
    last_message = std::max(last_message, MessageOfRun(run.tag, slots));
  }
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    const FieldSlot& field = slots[slot];
    if (!field.has_text || local.slot_is_rendered_[slot] || field.message > last_message) continue;
    if (field.message < static_cast<std::int32_t>(first_message)) continue;
    if (field.kind == FieldKind::kContent) ++local.report_.unrendered_contents;
    if (field.kind == FieldKind::kReasoning) ++local.report_.unrendered_reasonings;
    if (field.kind == FieldKind::kToolCall) ++local.report_.unrendered_tool_calls;
  }
}

Status TokenizeStage::CheckReasoning(const std::vector<std::int32_t>& turns, LocalState& local,
                                     const std::vector<FieldSlot>& slots) const {
  if (options_.reasoning != Reasoning::kKeep) return OkStatus();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    const FieldSlot& field = slots[slot];
    if (field.kind != FieldKind::kReasoning || !field.has_text || local.slot_is_rendered_[slot]) continue;
    if (!std::binary_search(turns.begin(), turns.end(), field.message)) continue;
    local.reason_ = "reasoning_dropped";
    return InvalidInput("the template drops " + field.name + " of message " + std::to_string(field.message) +
                        "; tokenize.reasoning is `keep`");
  }
  return OkStatus();
}

/// Counts control tokens in text of the row, or refuses them.
Status TokenizeStage::CheckSpecialTokens(LocalState& local, const std::vector<FieldSlot>& slots) const {
  const Encoding& encoding = local.encoding_;
  std::size_t run = 0;
  const std::vector<jinja::TextRun>& runs = local.rendered_.runs;
  for (std::size_t token = 0; token < encoding.ids.size(); ++token) {
    const auto id = static_cast<std::size_t>(encoding.ids[token]);
    if (files_.vocab_rows && encoding.ids[token] >= *files_.vocab_rows) {
      local.reason_ = "id_beyond_vocabulary";
      return InvalidInput("token id " + std::to_string(id) + " lies beyond the " + std::to_string(*files_.vocab_rows) +
                          " rows of the model's embedding: tokenizer.json has a token that the model of config.json "
                          "does not know");
    }
    if (id >= is_special_.size() || !is_special_[id]) continue;
    while (run < runs.size() && std::int64_t{runs[run].end} <= encoding.begin[token]) ++run;
    if (run == runs.size() || runs[run].tag.is_literal()) continue;
    ++local.report_.special_tokens_in_text;
    if (options_.special_in_text != SpecialInText::kReject) continue;
    const FieldSlot& field = slots[runs[run].tag.slot()];
    local.reason_ = "special_token_in_text";
    return InvalidInput("the control token '" + tokenizer_->TokenBytes(encoding.ids[token]) + "' stands in " +
                        field.name +
                        (field.message >= 0 ? " of message " + std::to_string(field.message) : " of the row"));
  }
  return OkStatus();
}

/// Applies max_length. A cut never leaves a part of a character's bytes.
Status TokenizeStage::LimitLength(LocalState& local) const {
  Encoding& encoding = local.encoding_;
  if (!max_length_ || static_cast<std::int64_t>(encoding.ids.size()) <= *max_length_) return OkStatus();
  if (options_.too_long != TooLong::kTruncate) {
    local.reason_ = "too_long";
    return InvalidInput("the sample has " + std::to_string(encoding.ids.size()) + " tokens; max_length is " +
                        std::to_string(*max_length_));
  }
  const std::string& text = local.rendered_.text;
  auto size = static_cast<std::size_t>(*max_length_);
  const auto cuts_character = [&](std::size_t tokens) {
    const auto end = static_cast<std::size_t>(encoding.end[tokens - 1]);
    return end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80;
  };
  while (size > 0 && cuts_character(size)) --size;
  encoding.ids.resize(size);
  encoding.begin.resize(size);
  encoding.end.resize(size);
  local.mask_.mask.resize(size);
  local.mask_.supervised_tokens = std::count(local.mask_.mask.begin(), local.mask_.mask.end(), 1);
  ++local.report_.truncated_samples;
  return OkStatus();
}

}  // namespace draftmill
