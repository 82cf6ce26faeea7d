// Conversations through a model's chat template, with the provenance of every byte of the result.
//
//   ConversationRenderer::Scratch scratch = renderer->MakeScratch();          // one per thread
//   DRAFTMILL_RETURN_IF_ERROR(renderer->Load(conversation, scratch));         // once per conversation
//   DRAFTMILL_RETURN_IF_ERROR(renderer->Render(scratch, {.messages = 3}, text));
//
// A conversation is a JSON object with `messages` and, where it has them, `tools` and `documents`; it must outlive the
// renderings. A failure of Render is the template's: its own refusal (raise_exception), or what jinja2 would raise.
// Thread-safety: a ConversationRenderer is const and shared; a Scratch belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "stages/template/chat_template.h"
#include "stages/template/evaluator.h"
#include "stages/template/provenance.h"

namespace draftmill {

/// Text with the origin of its runs; the runs tile it in order.
struct RenderedText {
  std::string text;
  std::vector<jinja::TextRun> runs;
};

/// What of a conversation is rendered.
struct RenderRequest {
  std::size_t messages = 0;  ///< the first so many
  bool add_generation_prompt = false;
};

/// The text that add_generation_prompt appends (the G of the loss mask's rule).
struct GenerationPrompt {
  std::string text;
  /// True where it may be a prompt or the end of what stood before: it counts only where the answer begins with all of
  /// it.
  bool counts_whole_only = false;
};

/// Which messages are the model's own.
enum class MessageRole : std::uint8_t { kAssistant, kOther };

class ConversationRenderer {
 public:
  struct Options {
    /// Of the template: bos_token, enable_thinking, ... `tools` and `documents` stand for rows that have none;
    /// `add_generation_prompt` says how samples end.
    json::Object variables;
    jinja::DateTime now;  ///< what strftime_now shows
    jinja::Limits limits;
  };

  /// Working memory of one thread, and the conversation that is loaded.
  class Scratch {
   public:
    /// Sources of field text in the loaded conversation, by slot.
    const std::vector<jinja::FieldSlot>& slots() const { return slots_; }
    const std::vector<MessageRole>& roles() const { return roles_; }

   private:
    friend class ConversationRenderer;
    explicit Scratch(const jinja::Limits& limits) : evaluator_(limits) {}

    jinja::Evaluator evaluator_;
    jinja::Arena::Mark empty_;
    jinja::Arena::Mark loaded_;
    std::vector<jinja::Value> variables_;  ///< by NameId
    std::vector<jinja::Value> messages_;
    std::vector<jinja::FieldSlot> slots_;
    std::vector<MessageRole> roles_;
    bool has_constant_prompt_ = false;
    std::string constant_prompt_;
    RenderedText with_prompt_;
    RenderedText without_prompt_;
  };

  static Result<std::unique_ptr<const ConversationRenderer>> Create(
      std::unique_ptr<const jinja::ChatTemplate> chat_template, Options options);

  const jinja::ChatTemplate& chat_template() const { return *template_; }
  std::unique_ptr<Scratch> MakeScratch() const;
  /// Whether a sample ends with a generation prompt; false unless the variables say so.
  bool ends_with_prompt() const { return ends_with_prompt_; }
  /// What the template sees as `tools` or `documents`; null where neither row nor variables have them.
  const json::Value* OfRowOrConfigured(const json::Value& conversation, std::string_view name) const;

  /// Takes the conversation in. Fails where it is no object with a list of objects as messages.
  Status Load(const json::Value& conversation, Scratch& scratch) const;

  /// Renders the loaded conversation into `out`, which is overwritten.
  Status Render(Scratch& scratch, const RenderRequest& request, RenderedText& out) const;

  /// What add_generation_prompt appends after the first `messages` messages of a sample that was rendered as `sample`.
  Result<GenerationPrompt> PromptAfter(Scratch& scratch, std::size_t messages, const RenderedText& sample) const;

 private:
  ConversationRenderer() = default;

  jinja::Value LoadMessage(const json::Value& message, std::int32_t index, Scratch& scratch) const;
  jinja::Value LoadField(const json::Member& field, std::int32_t message, Scratch& scratch) const;
  void SetVariable(std::string_view name, const jinja::Value& value, Scratch& scratch) const;

  std::unique_ptr<const jinja::ChatTemplate> template_;
  Options options_;
  bool ends_with_prompt_ = false;
  std::size_t configured_bytes_ = 0;  ///< of the variables
};

/// The message that a run belongs to: the owner of literal text, the message of field text; -1 for neither.
std::int32_t MessageOfRun(jinja::Provenance tag, const std::vector<jinja::FieldSlot>& slots);

/// Where the reasoning stands inside a content text: between the first <think>, or the start, and the first </think>.
/// An empty range where the text has no </think>.
struct ReasoningRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
ReasoningRange FindReasoning(std::string_view content);

}  // namespace draftmill
