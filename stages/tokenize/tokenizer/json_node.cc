#include "stages/tokenize/tokenizer/json_node.h"

#include <algorithm>

namespace draftmill {

Status JsonNode::Refuse(std::string_view why) const { return InvalidInput(path_ + ": " + std::string(why)); }

Status JsonNode::RefuseUnsupported(std::string_view why) const { return Unsupported(path_ + ": " + std::string(why)); }

Status JsonNode::CheckKeys(std::initializer_list<std::string_view> known) const {
  simdjson::dom::object object;
  if (element_.get_object().get(object) != simdjson::SUCCESS) return Refuse("expected an object");
  std::vector<std::string_view> seen;
  for (const simdjson::dom::key_value_pair member : object) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      return RefuseUnsupported("unknown key \"" + std::string(member.key.substr(0, 100)) + "\"");
    }
    if (std::find(seen.begin(), seen.end(), member.key) != seen.end()) {
      return Refuse("the key \"" + std::string(member.key) + "\" stands here twice");
    }
    seen.push_back(member.key);
  }
  return OkStatus();
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  simdjson::dom::element member;
  if (!element_.is_object() || element_.at_key(key).get(member) != simdjson::SUCCESS || member.is_null()) {
    return std::nullopt;
  }
  return JsonNode(member, path_ + "." + std::string(key));
}

Result<JsonNode> JsonNode::Get(std::string_view key) const {
  std::optional<JsonNode> member = Find(key);
  if (!member) return Refuse("\"" + std::string(key) + "\" is missing");
  return *std::move(member);
}

Result<std::vector<JsonNode>> JsonNode::Items() const {
  simdjson::dom::array array;
  if (element_.get_array().get(array) != simdjson::SUCCESS) return Refuse("expected a list");
  std::vector<JsonNode> items;
  for (const simdjson::dom::element item : array) {
    items.emplace_back(item, path_ + "[" + std::to_string(items.size()) + "]");
  }
  return items;
}

Result<std::string_view> JsonNode::AsString() const {
  std::string_view text;
  if (element_.get_string().get(text) != simdjson::SUCCESS) return Refuse("expected text");
  return text;
}

Result<bool> JsonNode::AsBool() const {
  bool value = false;
  if (element_.get_bool().get(value) != simdjson::SUCCESS) return Refuse("expected true or false");
  return value;
}

Result<std::int64_t> JsonNode::AsInteger() const {
  std::int64_t value = 0;
  if (element_.get_int64().get(value) != simdjson::SUCCESS) return Refuse("expected an integer");
  return value;
}

Result<bool> JsonNode::Bool(std::string_view key, std::optional<bool> missing) const {
  const std::optional<JsonNode> member = Find(key);
  if (member) return member->AsBool();
  if (missing) return *missing;
  return Refuse("\"" + std::string(key) + "\" is missing");
}

Result<std::string> JsonNode::String(std::string_view key, std::optional<std::string> missing) const {
  const std::optional<JsonNode> member = Find(key);
  if (!member) {
    if (missing) return *missing;
    return Refuse("\"" + std::string(key) + "\" is missing");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string_view text, member->AsString());
  return std::string(text);
}

}  // namespace draftmill
