// From a row as people have it to the one canonical form of a conversation. No run, no files: `draftmill tokenize` uses
// it alone.
//
//   RowRefusal refusal;
//   Result<json::Value> conversation = CanonicalConversation(std::move(row), RowForm::kAuto, /*normalize=*/true,
//   &refusal);
//
// Canonical is {"messages": [{"role", "content", ...}], "tools": [...], "documents": [...]}: each message keeps its own
// keys in their order; `tools` and `documents` stand only where the row has some. A pre-tokenized row is {"input_ids", "loss_mask", "text"}. Other
// keys of a row (ids, scores, sources) are left out, so they do not tell duplicates apart.
//
// Pure functions, safe from any thread. A refusal is kInvalidInput with one of the fixed words of
// stages/ingest/README.md. The forms are those of OpenAI's chat API and fine-tuning files, FastChat's ShareGPT files
// with LLaMA-Factory's tool turns and typed parts, Stanford Alpaca, TRL's prompt-completion rows and the question files
// of EAGLE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace draftmill {

/// How a row says what was said.
enum class RowForm : std::uint8_t {
  kAuto,              ///< told by the row's keys, in the order of this list from kPretokenized on
  kPretokenized,      ///< input_ids, loss_mask, and perhaps text
  kMessages,          ///< messages: [{role, content, ...}]
  kShareGpt,          ///< conversations: [{from, value}], or entries with role and content
  kAlpaca,            ///< instruction, input, output, and perhaps system, history
  kPromptCompletion,  ///< prompt and completion, each a text or a list of messages
  kTurns,             ///< turns: questions; reference: as many answers
};

/// "auto", "messages", "sharegpt", "alpaca", "prompt_completion", "turns", "pretokenized": as in
/// `ingest.sources.format`.
std::string_view RowFormName(RowForm form);
/// Fails with kInvalidConfig, naming all that there are.
Result<RowForm> RowFormFromName(std::string_view name);

/// The form that a row's keys tell; kAuto where they tell none.
RowForm RecognizedForm(const json::Value& row);

/// Why a row was refused: a fixed word for counting. The message is in the Status.
struct RowRefusal {
  std::string reason;

  /// Notes the word and makes the Status.
  Status Refuse(std::string_view word, std::string message) {
    reason = word;
    return InvalidInput(std::move(message));
  }
};

/// The canonical form of `row`. With `normalize`, null or absent content becomes an empty text, other fields that are
/// null and an empty `tool_calls` are left out, tool-call arguments that are a JSON object in a string become the
/// object, a list of text parts alone becomes one text (the parts one after the other, nothing between), `function_call`
/// becomes `tool_calls`, and `refusal` content; without it messages pass as they are.
Result<json::Value> CanonicalConversation(json::Value row, RowForm form, bool normalize, RowRefusal* refusal = nullptr);

/// The fixed word for a text that json::Parse refused.
std::string_view ReasonOf(json::ParseFault fault);

/// The bytes over which content_hash is taken: canonical JSON of the conversation.
std::string ContentForHash(const json::Value& conversation);

}  // namespace draftmill
