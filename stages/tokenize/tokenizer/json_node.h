// Reading a tokenizer file's JSON: an element of simdjson's tree that knows its path, so that every refusal can say
// where.
//
// simdjson is used directly because a tokenizer file has hundreds of thousands of strings, which need not become values
// of our own. A node must not outlive the parser that owns the tree. Belongs to one thread.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace draftmill {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element element, std::string path) : element_(element), path_(std::move(path)) {}

  simdjson::dom::element element() const { return element_; }
  /// For example "$.model.merges".
  const std::string& path() const { return path_; }

  /// An InvalidInput that starts with the path.
  Status Refuse(std::string_view why) const;
  /// An Unsupported that starts with the path.
  Status RefuseUnsupported(std::string_view why) const;

  bool is_null() const { return element_.is_null(); }
  bool is_object() const { return element_.is_object(); }

  /// Fails unless this is an object whose keys are all in `known` and stand there once.
  Status CheckKeys(std::initializer_list<std::string_view> known) const;
  /// The member, or nothing where it is missing or null.
  std::optional<JsonNode> Find(std::string_view key) const;
  /// The member; fails where it is missing or null.
  Result<JsonNode> Get(std::string_view key) const;
  /// The elements of a list.
  Result<std::vector<JsonNode>> Items() const;

  Result<std::string_view> AsString() const;
  Result<bool> AsBool() const;
  Result<std::int64_t> AsInteger() const;

  /// The member as a value of that type; `missing` where there is none or null, or a failure where `missing` is
  /// nothing.
  Result<bool> Bool(std::string_view key, std::optional<bool> missing = std::nullopt) const;
  Result<std::string> String(std::string_view key, std::optional<std::string> missing = std::nullopt) const;

 private:
  simdjson::dom::element element_;
  std::string path_;
};

}  // namespace draftmill
