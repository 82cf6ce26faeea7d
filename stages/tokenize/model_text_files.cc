#include "stages/tokenize/model_text_files.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/hash.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// tokenizer_config.json of models with many added tokens reaches a few MiB.
constexpr std::int64_t kMaximumFileBytes = std::int64_t{64} << 20;

constexpr std::array<std::string_view, 7> kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                            "pad_token", "cls_token", "mask_token"};
constexpr std::array<std::string_view, 5> kLengthFields = {"max_position_embeddings", "n_positions",
                                                           "max_sequence_length", "max_seq_len", "seq_length"};

/// A JSON file; null where there is none.
Result<json::Value> ReadJson(const std::string& path) {
  if (!RealFileSystem().Exists(path)) return json::Value();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadAll(path, kMaximumFileBytes));
  Result<json::Value> value = json::Parse(text);
  if (!value.ok()) return value.status().WithContext(path);
  if (!value->is_object()) return InvalidInput(path + ": must hold an object, not " + std::string(value->KindName()));
  return value;
}

/// A member of the config, or of its text_config where the model is nested.
const json::Value* FindTextField(const json::Value& config, std::string_view name) {
  if (const json::Value* field = config.Find(name); field != nullptr && !field->is_null()) return field;
  const json::Value* nested = config.Find("text_config");
  const json::Value* field = nested != nullptr ? nested->Find(name) : nullptr;
  return field != nullptr && !field->is_null() ? field : nullptr;
}

Status AddStopId(const json::Value& id, const std::string& place, std::vector<std::int32_t>& ids) {
  if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > std::numeric_limits<std::int32_t>::max()) {
    return InvalidInput(place + ": eos_token_id must be a token id or a list of them");
  }
  ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  return OkStatus();
}

Status AddStopIds(const json::Value& config, const std::string& place, std::vector<std::int32_t>& ids) {
  const json::Value* eos = FindTextField(config, "eos_token_id");
  if (eos == nullptr) return OkStatus();
  if (!eos->is_array()) return AddStopId(*eos, place, ids);
  for (const json::Value& id : eos->as_array()) DRAFTMILL_RETURN_IF_ERROR(AddStopId(id, place, ids));
  return OkStatus();
}

/// A special token is written as text or as {"content": text, ...}.
const std::string* TokenText(const json::Value* token) {
  if (token != nullptr && token->is_object()) token = token->Find("content");
  return token != nullptr && token->is_string() ? &token->as_string() : nullptr;
}

void SetToken(std::string_view name, const std::string& text, json::Object& tokens) {
  const auto known =
      std::find_if(tokens.begin(), tokens.end(), [name](const json::Member& token) { return token.first == name; });
  if (known != tokens.end())
    known->second = text;
  else
    tokens.emplace_back(name, text);
}

/// The tokens that a template sees by name: the usual ones, a model's own (`image_token`), and those that
/// `extra_special_tokens` names. A later file goes before an earlier one.
void TakeNamedTokens(const json::Value& file, json::Object& tokens) {
  if (!file.is_object()) return;
  for (const auto& [name, value] : file.as_object()) {
    const bool is_usual = std::find(kSpecialTokens.begin(), kSpecialTokens.end(), name) != kSpecialTokens.end();
    const std::string* text = is_usual || value.is_string() ? TokenText(&value) : nullptr;
    if (text != nullptr && name.ends_with("_token")) SetToken(name, *text, tokens);
  }
  const json::Value* extra = file.Find("extra_special_tokens");
  if (extra == nullptr || !extra->is_object()) return;
  for (const auto& [name, value] : extra->as_object()) {
    if (const std::string* text = TokenText(&value)) SetToken(name, *text, tokens);
  }
}

/// Older folders, whose tokenizer_config.json does not list the added tokens, have a file for the named ones.
Status TakeSpecialTokens(const std::string& folder, const json::Value& tokenizer_config, const Tokenizer& tokenizer,
                         ModelTextFiles& files) {
  TakeNamedTokens(tokenizer_config, files.special_tokens);
  if (tokenizer_config.Find("added_tokens_decoder") == nullptr) {
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value map, ReadJson(JoinPath(folder, "special_tokens_map.json")));
    TakeNamedTokens(map, files.special_tokens);
  }
  const json::Value tokens(files.special_tokens);
  const std::string* eos = TokenText(tokens.Find("eos_token"));
  if (eos == nullptr) return OkStatus();
  if (const auto id = tokenizer.TokenToId(*eos)) files.stop_tokens.push_back(*id);
  return OkStatus();
}

/// `chat_template` of a JSON file: one text, or a list of {"name", "template"}.
Status TakeTemplate(const json::Value& file, const std::string& place, ModelTextFiles& files) {
  const json::Value* value = file.Find("chat_template");
  if (value == nullptr || value->is_null()) return OkStatus();
  files.template_place = place;
  if (value->is_string()) {
    files.chat_template = value->as_string();
    return OkStatus();
  }
  if (!value->is_array()) return InvalidInput(place + ": chat_template must be text or a list of named templates");
  for (const json::Value& entry : value->as_array()) {
    const json::Value* name = entry.Find("name");
    const json::Value* source = entry.Find("template");
    if (name == nullptr || !name->is_string() || source == nullptr || !source->is_string()) {
      return InvalidInput(place + ": a named chat template must have `name` and `template`");
    }
    if (name->as_string() == "default") files.chat_template = source->as_string();
    if (name->as_string() == "tool_use") files.tool_template = source->as_string();
  }
  if (files.chat_template.empty()) return InvalidInput(place + ": none of the chat templates is named `default`");
  return OkStatus();
}

Status ReadTemplateFile(const std::string& path, ModelTextFiles& files) {
  if (path.ends_with(".json")) {
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value file, ReadJson(path));
    DRAFTMILL_RETURN_IF_ERROR(TakeTemplate(file, path, files));
    if (files.chat_template.empty()) return InvalidConfig(path + ": holds no chat_template");
    return OkStatus();
  }
  DRAFTMILL_ASSIGN_OR_RETURN(files.chat_template, RealFileSystem().ReadAll(path, kMaximumFileBytes));
  if (files.chat_template.empty()) return InvalidConfig(path + ": the chat template is empty");
  files.template_place = path;
  return OkStatus();
}

/// The template that the model's own code would take.
Status FindTemplate(const std::string& folder, const json::Value& tokenizer_config, ModelTextFiles& files) {
  const std::string jinja_file = JoinPath(folder, "chat_template.jinja");
  if (RealFileSystem().Exists(jinja_file)) {
    DRAFTMILL_RETURN_IF_ERROR(ReadTemplateFile(jinja_file, files));
    const std::string tool_file = JoinPath(folder, "additional_chat_templates/tool_use.jinja");
    if (!RealFileSystem().Exists(tool_file)) return OkStatus();
    DRAFTMILL_ASSIGN_OR_RETURN(files.tool_template, RealFileSystem().ReadAll(tool_file, kMaximumFileBytes));
    return OkStatus();
  }
  DRAFTMILL_RETURN_IF_ERROR(TakeTemplate(tokenizer_config, JoinPath(folder, "tokenizer_config.json"), files));
  if (!files.chat_template.empty()) return OkStatus();
  const std::string json_file = JoinPath(folder, "chat_template.json");
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value file, ReadJson(json_file));
  return TakeTemplate(file, json_file, files);
}

std::optional<std::int64_t> PositiveField(const json::Value& config, std::string_view name) {
  const json::Value* field = FindTextField(config, name);
  if (field == nullptr || !field->is_integer() || field->as_integer() <= 0) return std::nullopt;
  return field->as_integer();
}

std::string Fingerprint(const ModelTextFiles& files) {
  json::Object parts;
  parts.emplace_back("template", files.chat_template);
  parts.emplace_back("tool_template", files.tool_template ? json::Value(*files.tool_template) : json::Value());
  parts.emplace_back("special_tokens", json::Value(files.special_tokens));
  json::Array stops;
  for (const std::int32_t id : files.stop_tokens) stops.emplace_back(std::int64_t{id});
  parts.emplace_back("stop_tokens", std::move(stops));
  parts.emplace_back("max_length", files.max_length ? json::Value(*files.max_length) : json::Value());
  parts.emplace_back("vocab_rows", files.vocab_rows ? json::Value(*files.vocab_rows) : json::Value());
  return ToHex(HashBytes128(json::Write(json::Value(std::move(parts)), json::Style::kCanonical)));
}

}  // namespace

Result<ModelTextFiles> ReadModelTextFiles(const std::string& model_folder, const std::string& template_file,
                                          const Tokenizer& tokenizer) {
  ModelTextFiles files;
  if (!model_folder.empty()) {
    const std::string config_path = JoinPath(model_folder, "config.json");
    const std::string generation_path = JoinPath(model_folder, "generation_config.json");
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value config, ReadJson(config_path));
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value generation, ReadJson(generation_path));
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value tokenizer_config,
                               ReadJson(JoinPath(model_folder, "tokenizer_config.json")));
    DRAFTMILL_RETURN_IF_ERROR(AddStopIds(config, config_path, files.stop_tokens));
    DRAFTMILL_RETURN_IF_ERROR(AddStopIds(generation, generation_path, files.stop_tokens));
    DRAFTMILL_RETURN_IF_ERROR(TakeSpecialTokens(model_folder, tokenizer_config, tokenizer, files));
    for (const std::string_view name : kLengthFields) {
      if (!files.max_length) files.max_length = PositiveField(config, name);
    }
    files.vocab_rows = PositiveField(config, "vocab_size");
    if (template_file.empty()) DRAFTMILL_RETURN_IF_ERROR(FindTemplate(model_folder, tokenizer_config, files));
  }
  if (!template_file.empty()) DRAFTMILL_RETURN_IF_ERROR(ReadTemplateFile(template_file, files));
  std::sort(files.stop_tokens.begin(), files.stop_tokens.end());
  files.stop_tokens.erase(std::unique(files.stop_tokens.begin(), files.stop_tokens.end()), files.stop_tokens.end());
  files.fingerprint = Fingerprint(files);
  return files;
}

}  // namespace draftmill
