#include "stages/ingest/messages.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/utf8.h"

namespace draftmill {
namespace {

constexpr std::array<std::string_view, 7> kRoles = {"user",      "assistant", "system", "tool",
                                                    "developer", "function",  "ipython"};
/// JSON inside a JSON text (arguments, tools) is bounded like a small row.
constexpr json::ParseLimits kEmbeddedLimits = {.max_depth = 128, .max_bytes = std::size_t{64} << 20};

struct Speaker {
  std::string_view from;
  std::string_view role;
};
/// FastChat's and LLaMA-Factory's names, and the roles themselves.
constexpr std::array<Speaker, 15> kSpeakers = {{{"human", "user"},
                                                {"gpt", "assistant"},
                                                {"user", "user"},
                                                {"assistant", "assistant"},
                                                {"system", "system"},
                                                {"chatgpt", "assistant"},
                                                {"model", "assistant"},
                                                {"bing", "assistant"},
                                                {"bard", "assistant"},
                                                {"tool", "tool"},
                                                {"observation", "tool"},
                                                {"function_response", "tool"},
                                                {"tool_response", "tool"},
                                                {"developer", "developer"},
                                                {"function_call", "function_call"}}};

std::string Shown(std::string_view text) {
  std::string shown;
  json::AppendQuoted(Shortened(text), shown);
  return shown;
}

void EraseMember(json::Value& object, std::string_view key) {
  json::Object& members = object.as_object();
  members.erase(std::remove_if(members.begin(), members.end(), [&](const json::Member& m) { return m.first == key; }),
                members.end());
}

/// The member of that name; nullptr where there is none or it is null.
json::Value* FindGiven(json::Value& object, std::string_view key) {
  json::Value* value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

/// The object or list that a text holds as JSON, if it does.
std::optional<json::Value> EmbeddedJson(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (text[first] != '{' && text[first] != '[')) return std::nullopt;
  Result<json::Value> value = json::Parse(text, kEmbeddedLimits);
  if (!value.ok()) return std::nullopt;
  return std::move(value).value();
}

/// {"type": "function", "function": call}
json::Value WrappedFunction(json::Value function) {
  json::Object wrapped;
  wrapped.emplace_back("type", "function");
  wrapped.emplace_back("function", std::move(function));
  return json::Value(std::move(wrapped));
}

/// Appends the call or calls of a LLaMA-Factory `function_call` turn or `tool_call` part.
Status AppendCalls(json::Value calls, json::Array& tool_calls, RowRefusal& refusal) {
  if (calls.is_string()) {
    std::optional<json::Value> parsed = EmbeddedJson(calls.as_string());
    if (!parsed)
      return refusal.Refuse("wrong_type", "a function call must be a JSON object or list, here is other text");
    calls = *std::move(parsed);
  }
  if (calls.is_object()) {
    tool_calls.push_back(WrappedFunction(std::move(calls)));
    return OkStatus();
  }
  if (!calls.is_array()) {
    return refusal.Refuse("wrong_type", "a function call must be an object, not " + std::string(calls.KindName()));
  }
  for (json::Value& call : calls.as_array()) tool_calls.push_back(WrappedFunction(std::move(call)));
  return OkStatus();
}

/// One message under check.
class MessageCheck {
 public:
  MessageCheck(json::Value& message, bool normalize, RowRefusal& refusal)
      : message_(message), normalize_(normalize), refusal_(refusal) {}

  Status Run() {
    if (!message_.is_object()) {
      return refusal_.Refuse("wrong_type", "must be an object, not " + std::string(message_.KindName()));
    }
    if (normalize_) {
      DropFieldsThatSayNothing();
      DRAFTMILL_RETURN_IF_ERROR(TakeFunctionCall());
    }
    DRAFTMILL_RETURN_IF_ERROR(CheckRole());
    if (normalize_) TakeRefusal();
    DRAFTMILL_RETURN_IF_ERROR(CheckContent());
    DRAFTMILL_RETURN_IF_ERROR(CheckOptionalText("reasoning_content"));
    DRAFTMILL_RETURN_IF_ERROR(CheckToolCalls());
    return CheckWeight();
  }

  /// Whether the message had a `function_call` that became an entry of `tool_calls`.
  bool had_function_call() const { return had_function_call_; }

 private:
  /// Tables and clients write every field that there is, as null or an empty list where a message has none: templates
  /// that ask whether a message has tool calls, or print its reasoning, would take the null for one. `content` stays.
  void DropFieldsThatSayNothing() {
    json::Object& members = message_.as_object();
    const auto says_nothing = [](const json::Member& member) {
      const bool has_no_calls =
          member.first == "tool_calls" && member.second.is_array() && member.second.as_array().empty();
      return has_no_calls || (member.second.is_null() && member.first != "content");
    };
    members.erase(std::remove_if(members.begin(), members.end(), says_nothing), members.end());
  }

  /// The one call of OpenAI's older files becomes an entry of `tool_calls`, which is what templates know.
  Status TakeFunctionCall() {
    json::Value* call = message_.Find("function_call");
    if (call == nullptr) return OkStatus();
    if (!call->is_object()) {
      return refusal_.Refuse("wrong_type", "function_call must be an object, not " + std::string(call->KindName()));
    }
    if (message_.Find("tool_calls") != nullptr) {
      return refusal_.Refuse("wrong_type", "has function_call beside tool_calls");
    }
    json::Array calls;
    calls.push_back(WrappedFunction(std::move(*call)));
    *call = json::Value(std::move(calls));
    for (json::Member& member : message_.as_object()) {
      if (member.first == "function_call") member.first = "tool_calls";
    }
    had_function_call_ = true;
    return OkStatus();
  }

  /// OpenAI's API answers with `refusal` in the place of `content`: the same words to a template.
  void TakeRefusal() {
    json::Value* refusal = message_.Find("refusal");
    if (refusal == nullptr || !refusal->is_string() || FindGiven(message_, "content") != nullptr) return;
    message_.Set("content", json::Value(std::move(refusal->as_string())));
    EraseMember(message_, "refusal");
  }

  Status CheckRole() {
    const json::Value* role = message_.Find("role");
    if (role == nullptr) return refusal_.Refuse("wrong_type", "has no role");
    if (!role->is_string()) {
      return refusal_.Refuse("wrong_type", "the role must be text, not " + std::string(role->KindName()));
    }
    if (std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
      return refusal_.Refuse("unknown_role",
                             "unknown role " + Shown(role->as_string()) +
                                 "; known are user, assistant, system, tool, developer, function, ipython");
    }
    return OkStatus();
  }

  Status CheckContent() {
    json::Value* content = message_.Find("content");
    const bool is_given = content != nullptr && !content->is_null();
    if (!is_given && FindGiven(message_, "audio") != nullptr) {
      return refusal_.Refuse("unsupported_part", "has audio in the place of content; only text is supported");
    }
    if (content == nullptr) return CheckAbsentContent();
    if (content->is_null()) {
      if (normalize_) *content = "";
      return OkStatus();
    }
    if (content->is_string()) return OkStatus();
    if (content->is_array()) return CheckParts();
    return refusal_.Refuse(
        "wrong_type", "the content must be text, null or a list of parts, not " + std::string(content->KindName()));
  }

  Status CheckAbsentContent() {
    const json::Value* role = message_.Find("role");
    constexpr std::array<std::string_view, 5> kOtherWays = {"tool_calls", "function_call", "reasoning_content",
                                                            "reasoning", "thinking"};
    const bool says_otherwise = std::any_of(kOtherWays.begin(), kOtherWays.end(),
                                            [this](std::string_view key) { return message_.Find(key) != nullptr; });
    if (role->as_string() != "assistant" || !says_otherwise) return refusal_.Refuse("wrong_type", "has no content");
    if (!normalize_) return OkStatus();
    json::Object& members = message_.as_object();
    const auto after_role = std::find_if(members.begin(), members.end(),
                                         [](const json::Member& member) { return member.first == "role"; }) +
                            1;
    members.insert(after_role, {"content", ""});
    return OkStatus();
  }

  /// Typed content. What a text model has no tokens for is refused; a template may know `thinking` parts itself.
  Status CheckParts() {
    bool only_text = true;
    bool has_valued_parts = false;
    for (const json::Value& part : message_.Find("content")->as_array()) {
      DRAFTMILL_RETURN_IF_ERROR(CheckPart(part));
      const std::string& type = part.Find("type")->as_string();
      only_text = only_text && type == "text";
      has_valued_parts = has_valued_parts || type == "reasoning" || type == "tool_call";
    }
    if (!normalize_) return OkStatus();
    if (only_text) return JoinTextParts();
    return has_valued_parts ? SpreadValuedParts() : OkStatus();
  }

  Status CheckPart(const json::Value& part) {
    const json::Value* type = part.Find("type");
    if (type == nullptr || !type->is_string()) {
      return refusal_.Refuse("wrong_type", "a part of the content must be an object with a type");
    }
    const std::string& name = type->as_string();
    if (name != "text" && name != "thinking" && name != "reasoning" && name != "tool_call") {
      return refusal_.Refuse("unsupported_part", "content of type " + Shown(name) + " is not supported; only text is");
    }
    if (name == "thinking") return OkStatus();
    const json::Value* value = PartValue(part);
    if (value == nullptr || !(value->is_string() || (name == "tool_call" && value->is_object()))) {
      return refusal_.Refuse("wrong_type", "a part of type " + Shown(name) + " must hold text");
    }
    return OkStatus();
  }

  /// OpenAI puts the text under "text", LLaMA-Factory under "value".
  static const json::Value* PartValue(const json::Value& part) {
    const json::Value* text = part.Find("text");
    return text != nullptr && !text->is_null() ? text : part.Find("value");
  }

  Status JoinTextParts() {
    std::string text;
    json::Value* content = message_.Find("content");
    for (const json::Value& part : content->as_array()) text += PartValue(part)->as_string();
    *content = json::Value(std::move(text));
    return OkStatus();
  }

  /// Parts {type, value} of reasoning and tool calls become the message's own fields.
  Status SpreadValuedParts() {
    std::string text;
    std::string reasoning;
    json::Array tool_calls;
    for (const json::Value& part : message_.Find("content")->as_array()) {
      const std::string& type = part.Find("type")->as_string();
      if (type == "thinking") {
        return refusal_.Refuse("unsupported_part", "parts of type \"thinking\" beside \"reasoning\" or \"tool_call\"");
      }
      const json::Value& value = *PartValue(part);
      if (type == "tool_call") {
        DRAFTMILL_RETURN_IF_ERROR(AppendCalls(value, tool_calls, refusal_));
      } else {
        (type == "text" ? text : reasoning) += value.as_string();
      }
    }
    message_.Set("content", json::Value(std::move(text)));
    if (!reasoning.empty())
      DRAFTMILL_RETURN_IF_ERROR(AddOwnField("reasoning_content", json::Value(std::move(reasoning))));
    if (!tool_calls.empty()) DRAFTMILL_RETURN_IF_ERROR(AddOwnField("tool_calls", json::Value(std::move(tool_calls))));
    return OkStatus();
  }

  Status AddOwnField(std::string_view key, json::Value value) {
    const json::Value* there = message_.Find(key);
    if (there != nullptr && !there->is_null()) {
      return refusal_.Refuse("wrong_type", "has " + std::string(key) + " beside a content part that says the same");
    }
    message_.Set(key, std::move(value));
    return OkStatus();
  }

  Status CheckOptionalText(std::string_view key) {
    const json::Value* value = message_.Find(key);
    if (value == nullptr || value->is_string() || value->is_null()) return OkStatus();
    return refusal_.Refuse("wrong_type", std::string(key) + " must be text, not " + std::string(value->KindName()));
  }

  Status CheckToolCalls() {
    json::Value* calls = message_.Find("tool_calls");
    if (calls == nullptr || calls->is_null()) return OkStatus();
    if (!calls->is_array()) {
      return refusal_.Refuse("wrong_type", "tool_calls must be a list, not " + std::string(calls->KindName()));
    }
    for (json::Value& call : calls->as_array()) {
      json::Value* function = call.Find("function");
      if (function == nullptr) function = &call;
      const json::Value* name = function->Find("name");
      if (name == nullptr || !name->is_string()) {
        return refusal_.Refuse("wrong_type", "a tool call must be an object that names its function");
      }
      if (normalize_) DecodeArguments(function->Find("arguments"));
    }
    return OkStatus();
  }

  /// A text that is no JSON object stays the text that it is.
  static void DecodeArguments(json::Value* arguments) {
    if (arguments == nullptr || !arguments->is_string()) return;
    std::optional<json::Value> decoded = EmbeddedJson(arguments->as_string());
    if (decoded && decoded->is_object()) *arguments = *std::move(decoded);
  }

  /// `loss_weight`, or `weight` as in OpenAI's fine-tuning files, becomes `loss_weight` 0 or 1.
  Status CheckWeight() {
    const std::string_view key = message_.Find("loss_weight") != nullptr ? "loss_weight" : "weight";
    json::Value* weight = message_.Find(key);
    if (weight == nullptr) return OkStatus();
    if (weight->is_null()) {
      EraseMember(message_, key);
      return OkStatus();
    }
    const bool is_flag = weight->is_bool();
    if (!is_flag && !weight->is_number()) {
      return refusal_.Refuse("wrong_type",
                             std::string(key) + " must be 0 or 1, not " + std::string(weight->KindName()));
    }
    const double number = is_flag ? (weight->as_bool() ? 1.0 : 0.0) : weight->as_double();
    if (number != 0.0 && number != 1.0) {
      return refusal_.Refuse("unsupported_weight", std::string(key) + " is " + json::Write(*weight) +
                                                       "; only 0 (not trained on) and 1 are supported");
    }
    *weight = number == 1.0 ? 1 : 0;
    for (json::Member& member : message_.as_object()) {
      if (member.first == key) member.first = "loss_weight";
    }
    return OkStatus();
  }

  json::Value& message_;
  bool normalize_;
  RowRefusal& refusal_;
  bool had_function_call_ = false;
};

/// What a `function_call` gave stands under the role `function` in OpenAI's older files, under `tool` in today's.
void NameResultsOfFunctionsTool(json::Array& messages) {
  for (json::Value& message : messages) {
    json::Value* role = message.Find("role");
    if (role->as_string() == "function") *role = "tool";
  }
}

}  // namespace

std::string Shortened(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return std::string(text);
  const std::string_view start = text.substr(0, kMost);
  return std::string(start.substr(0, ValidUtf8Length(start))) + "...";
}

Status CheckMessages(json::Array& messages, bool normalize, RowRefusal& refusal) {
  if (messages.empty()) return refusal.Refuse("empty_conversation", "the conversation has no messages");
  bool has_answer = false;
  bool has_function_call = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    MessageCheck check(messages[i], normalize, refusal);
    const Status status = check.Run();
    if (!status.ok()) return status.WithContext("message " + std::to_string(i));
    has_answer = has_answer || messages[i].Find("role")->as_string() == "assistant";
    has_function_call = has_function_call || check.had_function_call();
  }
  if (has_function_call) NameResultsOfFunctionsTool(messages);
  if (!has_answer) return refusal.Refuse("no_assistant_turn", "no message of the assistant to train on");
  return OkStatus();
}

Result<json::Value> MessageFromTurn(json::Value turn, RowRefusal& refusal) {
  if (FindGiven(turn, "role") != nullptr) return turn;  // many files name their OpenAI messages `conversations`
  json::Value* from = turn.Find("from");
  if (from == nullptr || !from->is_string()) {
    return refusal.Refuse("wrong_type", "a turn must be an object with `from` and `value`, or `role` and `content`");
  }
  const auto speaker = std::find_if(kSpeakers.begin(), kSpeakers.end(),
                                    [&](const Speaker& known) { return known.from == from->as_string(); });
  if (speaker == kSpeakers.end()) {
    return refusal.Refuse("unknown_role",
                          "unknown speaker " + Shown(from->as_string()) +
                              "; known are human, gpt, system, function_call, observation, tool and some more");
  }
  json::Value* value = turn.Find("value");
  if (value == nullptr) return refusal.Refuse("wrong_type", "a turn has no value");
  json::Object message;
  if (speaker->role == "function_call") {
    json::Array calls;
    DRAFTMILL_RETURN_IF_ERROR(AppendCalls(std::move(*value), calls, refusal));
    message.emplace_back("role", "assistant");
    message.emplace_back("content", "");
    message.emplace_back("tool_calls", std::move(calls));
  } else {
    message.emplace_back("role", speaker->role);
    message.emplace_back("content", std::move(*value));
  }
  for (const std::string_view key :
       {"name", "reasoning_content", "reasoning", "thinking", "tool_calls", "tool_call_id", "loss_weight", "weight"}) {
    json::Value* field = FindGiven(turn, key);
    if (field == nullptr) continue;
    if (key == "tool_calls" && speaker->role == "function_call") {
      return refusal.Refuse("wrong_type", "a turn of function_call has tool_calls as well");
    }
    message.emplace_back(std::string(key), std::move(*field));
  }
  return json::Value(std::move(message));
}

Status CheckTools(json::Value& tools, bool wrap_bare, RowRefusal& refusal) {
  if (tools.is_string()) {
    const std::string& text = tools.as_string();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      tools = json::Array{};
      return OkStatus();
    }
    std::optional<json::Value> parsed = EmbeddedJson(text);
    if (!parsed) return refusal.Refuse("wrong_type", "tools is a text that is no JSON list");
    tools = *std::move(parsed);
  }
  if (!tools.is_array()) {
    return refusal.Refuse("wrong_type", "tools must be a list, not " + std::string(tools.KindName()));
  }
  for (json::Value& tool : tools.as_array()) {
    // A table gives tools of different shapes one column by writing each as a text.
    std::optional<json::Value> parsed = tool.is_string() ? EmbeddedJson(tool.as_string()) : std::nullopt;
    if (parsed) tool = *std::move(parsed);
    if (!tool.is_object()) {
      return refusal.Refuse("wrong_type", "a tool must be an object, not " + std::string(tool.KindName()));
    }
    const bool is_bare = tool.Find("name") != nullptr && tool.Find("function") == nullptr;
    if (wrap_bare && is_bare) tool = WrappedFunction(std::move(tool));
  }
  return OkStatus();
}

}  // namespace draftmill
