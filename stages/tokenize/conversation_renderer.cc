#include "stages/tokenize/conversation_renderer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "stages/template/unicode_text.h"

namespace draftmill {
namespace {

using jinja::FieldKind;
using jinja::FieldSlot;
using jinja::Provenance;
using jinja::TextRun;
using jinja::Value;

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::size_t kMaximumMessages = std::size_t{1} << 20;

FieldKind KindOfField(std::string_view name) {
  if (name == "content") return FieldKind::kContent;
  if (name == "reasoning_content" || name == "thinking" || name == "reasoning") return FieldKind::kReasoning;
  if (name == "tool_calls" || name == "function_call") return FieldKind::kToolCall;
  return name == "role" ? FieldKind::kRole : FieldKind::kOther;
}

bool IsBlank(std::string_view text) { return jinja::LeadingSpaceBytes(text) == text.size(); }

/// Whether any text stands in a JSON value that is not white space.
bool HasText(const json::Value& value) {
  if (value.is_string()) return !IsBlank(value.as_string());
  if (value.is_array()) return std::any_of(value.as_array().begin(), value.as_array().end(), HasText);
  if (!value.is_object()) return false;
  return std::any_of(value.as_object().begin(), value.as_object().end(),
                     [](const json::Member& member) { return HasText(member.second); });
}

/// About how many bytes a JSON value has, for the bound of what a template may write of it.
std::size_t SizeOf(const json::Value& value) {
  constexpr std::size_t kBytesOfAnyValue = 32;
  std::size_t size = kBytesOfAnyValue;
  if (value.is_string()) {
    size += value.as_string().size();
  } else if (value.is_array()) {
    for (const json::Value& item : value.as_array()) size += SizeOf(item);
  } else if (value.is_object()) {
    for (const json::Member& member : value.as_object()) size += member.first.size() + SizeOf(member.second);
  }
  return size;
}

Provenance AddSlot(std::vector<FieldSlot>& slots, FieldSlot slot) {
  slots.push_back(std::move(slot));
  return Provenance::Field(static_cast<std::uint32_t>(slots.size() - 1));
}

std::size_t CommonPrefix(std::string_view a, std::string_view b) {
  std::size_t size = 0;
  while (size < a.size() && size < b.size() && a[size] == b[size]) ++size;
  while (size > 0 && size < a.size() && (static_cast<unsigned char>(a[size]) & 0xC0U) == 0x80) --size;
  return size;
}

/// Where the text begins that belongs to no message and has none after it.
std::size_t EndOfMessages(const RenderedText& rendered, const std::vector<FieldSlot>& slots) {
  for (std::size_t i = rendered.runs.size(); i > 0; --i) {
    if (MessageOfRun(rendered.runs[i - 1].tag, slots) >= 0) return rendered.runs[i - 1].end;
  }
  return 0;
}

/// The message that the byte at `at` belongs to; -1 for none.
std::int32_t MessageAt(const RenderedText& rendered, std::size_t at, const std::vector<FieldSlot>& slots) {
  const auto run =
      std::upper_bound(rendered.runs.begin(), rendered.runs.end(), at,
                       [](std::size_t position, const TextRun& candidate) { return position < candidate.end; });
  return run == rendered.runs.end() ? -1 : MessageOfRun(run->tag, slots);
}

constexpr std::array<std::pair<std::string_view, jinja::GlobalFunction>, 5> kGlobals = {{
    {"namespace", jinja::GlobalFunction::kNamespace},
    {"raise_exception", jinja::GlobalFunction::kRaiseException},
    {"strftime_now", jinja::GlobalFunction::kStrftimeNow},
    {"range", jinja::GlobalFunction::kRange},
    {"dict", jinja::GlobalFunction::kDict},
}};

}  // namespace

std::int32_t MessageOfRun(Provenance tag, const std::vector<FieldSlot>& slots) {
  return tag.is_field() ? slots[tag.slot()].message : tag.owner();
}

ReasoningRange FindReasoning(std::string_view content) {
  const std::size_t close = content.find(kThinkClose);
  if (close == std::string_view::npos) return {};
  const std::size_t open = content.find(kThinkOpen);
  return {open < close ? open + kThinkOpen.size() : 0, close};
}

Result<std::unique_ptr<const ConversationRenderer>> ConversationRenderer::Create(
    std::unique_ptr<const jinja::ChatTemplate> chat_template, Options options) {
  std::unique_ptr<ConversationRenderer> renderer(new ConversationRenderer());
  for (const auto& [name, value] : options.variables) {
    renderer->configured_bytes_ += SizeOf(value);
    if (name == "messages")
      return InvalidConfig("the template variable 'messages' comes from the row and cannot be set");
    const bool is_list = name == "tools" || name == "documents";
    if (is_list && !value.is_array() && !value.is_null()) {
      return InvalidConfig("the template variable '" + name + "' must be a list, not " + std::string(value.KindName()));
    }
    if (name != "add_generation_prompt") continue;
    if (!value.is_bool()) {
      return InvalidConfig("the template variable '" + name + "' must be true or false, not " +
                           std::string(value.KindName()));
    }
    renderer->ends_with_prompt_ = value.as_bool();
  }
  renderer->template_ = std::move(chat_template);
  renderer->options_ = std::move(options);
  return std::unique_ptr<const ConversationRenderer>(std::move(renderer));
}

std::unique_ptr<ConversationRenderer::Scratch> ConversationRenderer::MakeScratch() const {
  std::unique_ptr<Scratch> scratch(new Scratch(options_.limits));
  scratch->empty_ = scratch->evaluator_.arena().mark();
  return scratch;
}

void ConversationRenderer::SetVariable(std::string_view name, const Value& value, Scratch& scratch) const {
  const auto& ids = template_->parsed().name_ids;
  const auto id = ids.find(std::string(name));
  if (id != ids.end()) scratch.variables_[id->second] = value;
}

const json::Value* ConversationRenderer::OfRowOrConfigured(const json::Value& conversation,
                                                           std::string_view name) const {
  const json::Value* value = conversation.Find(name);
  if (value != nullptr && !value->is_null()) return value;
  for (const json::Member& variable : options_.variables) {
    if (variable.first == name && !variable.second.is_null()) return &variable.second;
  }
  return nullptr;
}

Status ConversationRenderer::Load(const json::Value& conversation, Scratch& scratch) const {
  const json::Value* messages = conversation.Find("messages");
  if (messages == nullptr || !messages->is_array()) return InvalidInput("the conversation has no list of messages");
  if (messages->as_array().size() > kMaximumMessages)
    return InvalidInput("the conversation has more than 2^20 messages");
  jinja::Arena& arena = scratch.evaluator_.arena();
  arena.Rewind(scratch.empty_);
  scratch.slots_.clear();
  scratch.roles_.clear();
  scratch.messages_.clear();
  scratch.variables_.assign(template_->parsed().names.size(), Value::Undefined(nullptr));
  for (const auto& [name, function] : kGlobals) SetVariable(name, Value::Of(function), scratch);
  for (const json::Member& variable : options_.variables) {
    SetVariable(variable.first, jinja::FromJson(arena, variable.second, Provenance()), scratch);
  }
  for (const std::string_view name : {"tools", "documents"}) {
    const json::Value* value = OfRowOrConfigured(conversation, name);
    Value loaded = Value::None();
    if (value != nullptr) {
      loaded = jinja::FromJson(arena, *value,
                               AddSlot(scratch.slots_, {-1, FieldKind::kRow, std::string(name), HasText(*value)}));
    }
    SetVariable(name, loaded, scratch);
  }
  std::int32_t index = 0;
  for (const json::Value& message : messages->as_array()) {
    if (!message.is_object()) return InvalidInput("message " + std::to_string(index) + " is no object");
    const json::Value* role = message.Find("role");
    const bool is_assistant = role != nullptr && role->is_string() && role->as_string() == "assistant";
    scratch.roles_.push_back(is_assistant ? MessageRole::kAssistant : MessageRole::kOther);
    scratch.messages_.push_back(LoadMessage(message, index++, scratch));
  }
  if (arena.over_budget()) return InvalidInput("the conversation is too large to be rendered");
  scratch.evaluator_.SetFieldSlots(scratch.slots_);
  scratch.evaluator_.SetRowBytes(SizeOf(conversation) + configured_bytes_);
  scratch.loaded_ = arena.mark();
  return OkStatus();
}

Value ConversationRenderer::LoadMessage(const json::Value& message, std::int32_t index, Scratch& scratch) const {
  jinja::Arena& arena = scratch.evaluator_.arena();
  const json::Object& fields = message.as_object();
  std::vector<jinja::DictEntry> entries;
  entries.reserve(fields.size());
  for (const json::Member& field : fields) {
    entries.push_back({jinja::TextOf(arena, field.first, Provenance()), LoadField(field, index, scratch)});
  }
  const Value dict = jinja::MakeDict(arena, entries);
  dict.dict()->message = index;
  return dict;
}

Value ConversationRenderer::LoadField(const json::Member& field, std::int32_t message, Scratch& scratch) const {
  jinja::Arena& arena = scratch.evaluator_.arena();
  const auto& [name, value] = field;
  const FieldKind kind = KindOfField(name);
  const auto add = [&](FieldKind slot_kind, std::string slot_name, bool has_text) {
    return AddSlot(scratch.slots_, {message, slot_kind, std::move(slot_name), has_text});
  };
  if (kind == FieldKind::kToolCall && value.is_array()) {
    std::vector<Value> calls;
    for (const json::Value& call : value.as_array()) {
      const std::string slot_name = name + "[" + std::to_string(calls.size()) + "]";
      calls.push_back(jinja::FromJson(arena, call, add(kind, slot_name, HasText(call))));
    }
    return jinja::MakeList(arena, calls);
  }
  if (kind != FieldKind::kContent || !value.is_string())
    return jinja::FromJson(arena, value, add(kind, name, HasText(value)));
  const std::string_view content = value.as_string();
  const ReasoningRange reasoning = FindReasoning(content);
  const bool splits = scratch.roles_.back() == MessageRole::kAssistant && reasoning.end > reasoning.begin;
  if (!splits) return jinja::TextOf(arena, content, add(kind, name, !IsBlank(content)));
  const std::string_view thoughts = content.substr(reasoning.begin, reasoning.end - reasoning.begin);
  const std::string_view answer = content.substr(reasoning.end + kThinkClose.size());
  const Provenance said = add(FieldKind::kContent, name, !IsBlank(answer));
  const Provenance thought = add(FieldKind::kReasoning, name + " (reasoning)", !IsBlank(thoughts));
  std::vector<TextRun> runs;
  if (reasoning.begin > 0) runs.push_back({static_cast<std::uint32_t>(reasoning.begin), said});
  runs.push_back({static_cast<std::uint32_t>(reasoning.end), thought});
  runs.push_back({static_cast<std::uint32_t>(content.size()), said});
  return jinja::TextOf(arena, content, runs);
}

Status ConversationRenderer::Render(Scratch& scratch, const RenderRequest& request, RenderedText& out) const {
  jinja::Arena& arena = scratch.evaluator_.arena();
  arena.Rewind(scratch.loaded_);
  const std::span<const Value> messages(scratch.messages_.data(), std::min(request.messages, scratch.messages_.size()));
  SetVariable("messages", jinja::MakeList(arena, messages), scratch);
  SetVariable("add_generation_prompt", Value::Bool(request.add_generation_prompt), scratch);
  const Status status = scratch.evaluator_.Render(template_->parsed(), scratch.variables_, options_.now);
  out.text.clear();
  out.runs.clear();
  if (!status.ok()) return status;
  out.text.reserve(scratch.evaluator_.output_bytes());
  for (const jinja::OutputRun& run : scratch.evaluator_.output()) {
    out.text.append(run.data, run.size);
    const auto end = static_cast<std::uint32_t>(out.text.size());
    if (!out.runs.empty() && out.runs.back().tag == run.tag)
      out.runs.back().end = end;
    else
      out.runs.push_back({end, run.tag});
  }
  return OkStatus();
}

Result<GenerationPrompt> ConversationRenderer::PromptAfter(Scratch& scratch, std::size_t messages,
                                                           const RenderedText& sample) const {
  if (scratch.has_constant_prompt_) return GenerationPrompt{scratch.constant_prompt_};
  RenderedText& with = scratch.with_prompt_;
  RenderedText& without = scratch.without_prompt_;
  DRAFTMILL_RETURN_IF_ERROR(Render(scratch, {messages, true}, with));
  DRAFTMILL_RETURN_IF_ERROR(Render(scratch, {messages, false}, without));
  if (with.text.size() > without.text.size() && with.text.starts_with(without.text)) {
    // What the template writes behind the last message (a list of tool results that it closes) stands there before the
    // prompt. A turn that begins with the same text goes on after it.
    const std::size_t end = EndOfMessages(without, scratch.slots_);
    const bool goes_on = end < without.text.size() && sample.text.starts_with(without.text) &&
                         MessageAt(sample, end, scratch.slots_) == static_cast<std::int32_t>(messages);
    std::string prompt = with.text.substr(goes_on ? end : without.text.size());
    if (template_->prompt_is_constant()) {
      scratch.has_constant_prompt_ = true;
      scratch.constant_prompt_ = prompt;
    }
    return GenerationPrompt{std::move(prompt)};
  }
  // The template ends differently with a prompt, or always appends one: the text at the end that belongs to no message.
  const std::size_t end = EndOfMessages(with, scratch.slots_);
  if (with.text != without.text) {
    return GenerationPrompt{with.text.substr(end < with.text.size() ? end : CommonPrefix(with.text, without.text))};
  }
  std::string tail = with.text.substr(end);
  const bool is_always_there = sample.text.substr(EndOfMessages(sample, scratch.slots_)) == tail;
  return GenerationPrompt{std::move(tail), !is_always_there};
}

}  // namespace draftmill
