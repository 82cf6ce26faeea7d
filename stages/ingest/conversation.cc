#include "stages/ingest/conversation.h"

#include <array>
#include <limits>
#include <utility>

#include "stages/ingest/messages.h"

namespace draftmill {
namespace {

struct NamedForm {
  RowForm form;
  std::string_view name;
};
constexpr std::array<NamedForm, 7> kForms = {{{RowForm::kAuto, "auto"},
                                              {RowForm::kPretokenized, "pretokenized"},
                                              {RowForm::kMessages, "messages"},
                                              {RowForm::kShareGpt, "sharegpt"},
                                              {RowForm::kAlpaca, "alpaca"},
                                              {RowForm::kPromptCompletion, "prompt_completion"},
                                              {RowForm::kTurns, "turns"}}};

/// Whether the row says something under that key. Tables of several forms have every column, null where a row has none.
bool Has(const json::Value& row, std::string_view key) {
  const json::Value* value = row.Find(key);
  return value != nullptr && !value->is_null();
}

std::string KeysOf(const json::Value& row) {
  std::string keys;
  for (const json::Member& member : row.as_object()) {
    if (keys.size() > 100) return keys + ", ...";
    if (!keys.empty()) keys += ", ";
    keys += Shortened(member.first);
  }
  return keys.empty() ? "none" : keys;
}

json::Value Message(std::string_view role, json::Value content) {
  json::Object message;
  message.emplace_back("role", role);
  message.emplace_back("content", std::move(content));
  return json::Value(std::move(message));
}

/// Makes the messages of one row of any form but pre-tokenized.
class RowReading {
 public:
  RowReading(json::Value& row, bool normalize, RowRefusal& refusal)
      : row_(row), normalize_(normalize), refusal_(refusal) {}

  Result<json::Value> Run(RowForm form) {
    json::Array messages;
    DRAFTMILL_RETURN_IF_ERROR(ReadMessages(form, messages));
    DRAFTMILL_RETURN_IF_ERROR(AddSystem(messages));
    DRAFTMILL_RETURN_IF_ERROR(CheckMessages(messages, normalize_, refusal_));
    json::Object conversation;
    conversation.emplace_back("messages", std::move(messages));
    // OpenAI's older files list bare descriptions under `functions`.
    const bool has_functions = !Has(row_, "tools") && Has(row_, "functions");
    if (has_functions || Has(row_, "tools")) {
      json::Value& tools = *row_.Find(has_functions ? "functions" : "tools");
      DRAFTMILL_RETURN_IF_ERROR(CheckTools(tools, has_functions || form == RowForm::kShareGpt, refusal_));
      if (!tools.as_array().empty()) conversation.emplace_back("tools", std::move(tools));
    }
    json::Value* documents = row_.Find("documents");
    if (documents != nullptr && !documents->is_null()) {
      if (!documents->is_array()) {
        return refusal_.Refuse("wrong_type", "documents must be a list, not " + std::string(documents->KindName()));
      }
      if (!documents->as_array().empty()) conversation.emplace_back("documents", std::move(*documents));
    }
    return json::Value(std::move(conversation));
  }

 private:
  Status ReadMessages(RowForm form, json::Array& messages) {
    switch (form) {
      case RowForm::kMessages: return TakeList("messages", messages);
      case RowForm::kShareGpt: return ReadShareGpt(messages);
      case RowForm::kAlpaca: return ReadAlpaca(messages);
      case RowForm::kPromptCompletion: return ReadPromptCompletion(messages);
      case RowForm::kTurns: return ReadTurns(messages);
      case RowForm::kAuto:
      case RowForm::kPretokenized: break;
    }
    return Internal("a form of rows without messages");
  }

  Status TakeList(std::string_view key, json::Array& list) {
    json::Value* value = row_.Find(key);
    if (value == nullptr) return refusal_.Refuse("unknown_form", "the row has no `" + std::string(key) + "`");
    if (!value->is_array()) {
      return refusal_.Refuse("wrong_type",
                             "`" + std::string(key) + "` must be a list, not " + std::string(value->KindName()));
    }
    list = std::move(value->as_array());
    return OkStatus();
  }

  Status TakeText(std::string_view key, std::string& text) {
    json::Value* value = row_.Find(key);
    if (value == nullptr) return refusal_.Refuse("unknown_form", "the row has no `" + std::string(key) + "`");
    if (!value->is_string()) {
      return refusal_.Refuse("wrong_type",
                             "`" + std::string(key) + "` must be text, not " + std::string(value->KindName()));
    }
    text = std::move(value->as_string());
    return OkStatus();
  }

  Status TakeOptionalText(std::string_view key, std::string& text) {
    const json::Value* value = row_.Find(key);
    return value == nullptr || value->is_null() ? OkStatus() : TakeText(key, text);
  }

  /// A system prompt that stands beside the conversation goes in front of it, unless it stands there already.
  Status AddSystem(json::Array& messages) {
    std::string system;
    DRAFTMILL_RETURN_IF_ERROR(TakeOptionalText("system", system));
    if (system.empty() || messages.empty()) return OkStatus();
    const json::Value* role = messages.front().Find("role");
    const json::Value* content = messages.front().Find("content");
    const bool is_there =
        role != nullptr && *role == json::Value("system") && content != nullptr && *content == json::Value(system);
    if (!is_there) messages.insert(messages.begin(), Message("system", json::Value(std::move(system))));
    return OkStatus();
  }

  Status ReadShareGpt(json::Array& messages) {
    json::Array turns;
    DRAFTMILL_RETURN_IF_ERROR(TakeList("conversations", turns));
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Result<json::Value> message = MessageFromTurn(std::move(turns[i]), refusal_);
      if (!message.ok()) return message.status().WithContext("turn " + std::to_string(i));
      messages.push_back(std::move(message).value());
    }
    return OkStatus();
  }

  /// LLaMA-Factory's reading: the input stands under the instruction.
  Status ReadAlpaca(json::Array& messages) {
    std::string instruction;
    std::string input;
    std::string output;
    DRAFTMILL_RETURN_IF_ERROR(TakeText("instruction", instruction));
    DRAFTMILL_RETURN_IF_ERROR(TakeOptionalText("input", input));
    DRAFTMILL_RETURN_IF_ERROR(TakeText("output", output));
    DRAFTMILL_RETURN_IF_ERROR(AddHistory(messages));
    if (!input.empty()) instruction += (instruction.empty() ? "" : "\n") + input;
    messages.push_back(Message("user", json::Value(std::move(instruction))));
    messages.push_back(Message("assistant", json::Value(std::move(output))));
    return OkStatus();
  }

  Status AddHistory(json::Array& messages) {
    const json::Value* given = row_.Find("history");
    if (given == nullptr || given->is_null()) return OkStatus();
    json::Array history;
    DRAFTMILL_RETURN_IF_ERROR(TakeList("history", history));
    for (json::Value& pair : history) {
      const bool is_pair = pair.is_array() && pair.as_array().size() == 2 && pair.as_array()[0].is_string() &&
                           pair.as_array()[1].is_string();
      if (!is_pair) return refusal_.Refuse("wrong_type", "`history` must be a list of pairs of question and answer");
      messages.push_back(Message("user", std::move(pair.as_array()[0])));
      messages.push_back(Message("assistant", std::move(pair.as_array()[1])));
    }
    return OkStatus();
  }

  /// Only the completion is trained on: an answer inside the prompt gets weight 0.
  Status ReadPromptCompletion(json::Array& messages) {
    DRAFTMILL_RETURN_IF_ERROR(AddSide("prompt", "user", messages));
    for (json::Value& message : messages) {
      const json::Value* role = message.Find("role");
      if (role != nullptr && *role == json::Value("assistant")) message.Set("loss_weight", 0);
    }
    return AddSide("completion", "assistant", messages);
  }

  Status AddSide(std::string_view key, std::string_view role, json::Array& messages) {
    const json::Value* side = row_.Find(key);
    if (side == nullptr || !side->is_array()) {
      std::string text;
      DRAFTMILL_RETURN_IF_ERROR(TakeText(key, text));
      messages.push_back(Message(role, json::Value(std::move(text))));
      return OkStatus();
    }
    json::Array list;
    DRAFTMILL_RETURN_IF_ERROR(TakeList(key, list));
    for (json::Value& message : list) messages.push_back(std::move(message));
    return OkStatus();
  }

  Status ReadTurns(json::Array& messages) {
    json::Array turns;
    DRAFTMILL_RETURN_IF_ERROR(TakeList("turns", turns));
    if (turns.empty()) return refusal_.Refuse("empty_conversation", "`turns` is empty");
    if (!Has(row_, "reference")) {
      return refusal_.Refuse("no_assistant_turn", "the row has questions (`turns`) but no answers (`reference`)");
    }
    json::Array answers;
    DRAFTMILL_RETURN_IF_ERROR(TakeList("reference", answers));
    if (answers.size() != turns.size()) {
      return refusal_.Refuse("wrong_type", "the row has " + std::to_string(turns.size()) + " `turns` but " +
                                               std::to_string(answers.size()) + " answers in `reference`");
    }
    for (std::size_t i = 0; i < turns.size(); ++i) {
      messages.push_back(Message("user", std::move(turns[i])));
      messages.push_back(Message("assistant", std::move(answers[i])));
    }
    return OkStatus();
  }

  json::Value& row_;
  bool normalize_;
  RowRefusal& refusal_;
};

/// Checks one of the two lists of a pre-tokenized row; booleans in it become 0 and 1.
Status CheckNumbers(json::Value* list, std::string_view key, std::int64_t most, RowRefusal& refusal) {
  const std::string name = "`" + std::string(key) + "`";
  if (list == nullptr) return refusal.Refuse("unknown_form", "a pre-tokenized row needs " + name);
  if (!list->is_array())
    return refusal.Refuse("wrong_type", name + " must be a list, not " + std::string(list->KindName()));
  json::Array& numbers = list->as_array();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i].is_bool() && most == 1) numbers[i] = numbers[i].as_bool() ? 1 : 0;
    const bool is_good = numbers[i].is_integer() && numbers[i].as_integer() >= 0 && numbers[i].as_integer() <= most;
    if (!is_good) {
      const std::string shown =
          numbers[i].is_number() ? Shortened(json::Write(numbers[i])) : std::string(numbers[i].KindName());
      return refusal.Refuse("wrong_type", name + "[" + std::to_string(i) + "] is " + shown +
                                              ", not an integer from 0 to " + std::to_string(most));
    }
  }
  return OkStatus();
}

Result<json::Value> PretokenizedRow(json::Value& row, RowRefusal& refusal) {
  json::Value* ids = row.Find("input_ids");
  json::Value* mask = row.Find("loss_mask");
  json::Value* text = row.Find("text");
  DRAFTMILL_RETURN_IF_ERROR(CheckNumbers(ids, "input_ids", std::numeric_limits<std::int32_t>::max(), refusal));
  DRAFTMILL_RETURN_IF_ERROR(CheckNumbers(mask, "loss_mask", 1, refusal));
  if (ids->as_array().size() != mask->as_array().size()) {
    return refusal.Refuse("wrong_type", "`input_ids` has " + std::to_string(ids->as_array().size()) +
                                            " entries but `loss_mask` " + std::to_string(mask->as_array().size()));
  }
  if (ids->as_array().empty()) return refusal.Refuse("empty_conversation", "`input_ids` is empty");
  const bool has_text = text != nullptr && !text->is_null();
  if (has_text && !text->is_string()) {
    return refusal.Refuse("wrong_type", "`text` must be text, not " + std::string(text->KindName()));
  }
  json::Object conversation;
  conversation.emplace_back("input_ids", std::move(*ids));
  conversation.emplace_back("loss_mask", std::move(*mask));
  if (has_text) conversation.emplace_back("text", std::move(*text));
  return json::Value(std::move(conversation));
}

/// A weight of a whole row would have to scale its loss, which a mask of 0 and 1 cannot say.
Status CheckRowWeight(const json::Value& row, RowRefusal& refusal) {
  for (const std::string_view key : {"loss_weight", "weight"}) {
    const json::Value* weight = row.Find(key);
    if (weight == nullptr || !weight->is_number() || weight->as_double() == 1.0) continue;
    return refusal.Refuse("unsupported_weight",
                          "the row's " + std::string(key) + " is " + Shortened(json::Write(*weight)) +
                              "; a row counts once or is left out of the file (messages may have loss_weight 0)");
  }
  return OkStatus();
}

}  // namespace

RowForm RecognizedForm(const json::Value& row) {
  const auto told_by = [](auto has) {
    if (has("input_ids")) return RowForm::kPretokenized;
    if (has("messages")) return RowForm::kMessages;
    if (has("conversations")) return RowForm::kShareGpt;
    if (has("instruction") && has("output")) return RowForm::kAlpaca;
    if (has("prompt") && has("completion")) return RowForm::kPromptCompletion;
    return has("turns") ? RowForm::kTurns : RowForm::kAuto;
  };
  const RowForm given = told_by([&row](std::string_view key) { return Has(row, key); });
  if (given != RowForm::kAuto) return given;
  // So that a row whose only column is null is refused for that.
  return told_by([&row](std::string_view key) { return row.Find(key) != nullptr; });
}

std::string_view RowFormName(RowForm form) {
  for (const NamedForm& known : kForms) {
    if (known.form == form) return known.name;
  }
  return "auto";
}

Result<RowForm> RowFormFromName(std::string_view name) {
  std::string names;
  for (const NamedForm& known : kForms) {
    if (known.name == name) return known.form;
    names.append(names.empty() ? "" : ", ").append(known.name);
  }
  return InvalidConfig("unknown format \"" + Shortened(name) + "\"; known are " + names);
}

Result<json::Value> CanonicalConversation(json::Value row, RowForm form, bool normalize, RowRefusal* refusal) {
  RowRefusal unused;
  RowRefusal& noted = refusal != nullptr ? *refusal : unused;
  if (!row.is_object()) {
    return noted.Refuse("unknown_form", "a row must be an object, not " + std::string(row.KindName()));
  }
  if (form == RowForm::kAuto) form = RecognizedForm(row);
  if (form == RowForm::kAuto) {
    return noted.Refuse("unknown_form", "the row's keys (" + KeysOf(row) +
                                            ") are none of messages, conversations, instruction+output, "
                                            "prompt+completion, turns+reference, input_ids+loss_mask");
  }
  DRAFTMILL_RETURN_IF_ERROR(CheckRowWeight(row, noted));
  if (form == RowForm::kPretokenized) return PretokenizedRow(row, noted);
  return RowReading(row, normalize, noted).Run(form);
}

std::string_view ReasonOf(json::ParseFault fault) {
  switch (fault) {
    case json::ParseFault::kSyntax: return "broken_json";
    case json::ParseFault::kUtf8: return "broken_utf8";
    case json::ParseFault::kLoneSurrogate: return "lone_surrogate";
    case json::ParseFault::kDuplicateKey: return "duplicate_key";
    case json::ParseFault::kTooDeep: return "too_deep";
    case json::ParseFault::kTooLong: return "row_too_long";
  }
  return "broken_json";
}

std::string ContentForHash(const json::Value& conversation) {
  return json::Write(conversation, json::Style::kCanonical);
}

}  // namespace draftmill
