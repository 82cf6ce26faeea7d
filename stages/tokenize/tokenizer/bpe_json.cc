#include "stages/tokenize/tokenizer/bpe_json.h"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "stages/tokenize/tokenizer/byte_alphabet.h"

namespace draftmill {
namespace {

/// Token names to ids while the model is read.
class NameLookup {
 public:
  NameLookup(const BpeJson& bpe, bool byte_level) : bpe_(bpe), byte_level_(byte_level) {
    for (const auto& [name, id] : bpe.names) names_.emplace(name, id);
  }

  std::int32_t Find(std::string_view name) {
    if (!byte_level_) return bpe_.parts.vocabulary.Find(name);
    if (DecodeByteLevel(name, bytes_)) return bpe_.parts.vocabulary.Find(bytes_);
    const auto found = names_.find(std::string(name));
    return found == names_.end() ? -1 : found->second;
  }

 private:
  const BpeJson& bpe_;
  bool byte_level_;
  std::string bytes_;
  std::unordered_map<std::string, std::int32_t> names_;
};

Status ReadVocabulary(const JsonNode& node, bool byte_level, BpeJson& bpe) {
  simdjson::dom::object object;
  if (node.element().get_object().get(object) != simdjson::SUCCESS) return node.Refuse("expected an object");
  const std::size_t size = object.size();
  bpe.parts.vocabulary.Reserve(size, size * 8);
  std::string bytes;
  for (const simdjson::dom::key_value_pair member : object) {
    std::int64_t id = 0;
    const auto refuse = [&](const char* why) {
      return node.Refuse("token \"" + std::string(member.key.substr(0, 100)) + "\" " + why);
    };
    if (member.value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > TokenTable::kMaxId) {
      return refuse("has no id between 0 and 16777215");
    }
    const auto token_id = static_cast<std::int32_t>(id);
    const bool matchable = !byte_level || DecodeByteLevel(member.key, bytes);
    const std::string_view content = byte_level && matchable ? std::string_view(bytes) : member.key;
    if (!matchable) {
      bpe.names.emplace_back(member.key, token_id);
      continue;
    }
    switch (bpe.parts.vocabulary.Add(content, token_id)) {
      case TokenTable::AddResult::kAdded: break;
      case TokenTable::AddResult::kContentTaken: return refuse("stands there twice");
      case TokenTable::AddResult::kIdTaken: return refuse("has the id of another token");
    }
  }
  bpe.size = static_cast<std::int64_t>(bpe.parts.vocabulary.size() + bpe.names.size());
  std::unordered_map<std::string_view, std::int32_t> seen;
  for (const auto& [name, id] : bpe.names) {
    if (bpe.parts.vocabulary.Contains(id)) return node.Refuse("token \"" + name + "\" has the id of another token");
    if (!seen.emplace(name, id).second) return node.Refuse("token \"" + name + "\" stands there twice");
  }
  return OkStatus();
}

/// The first line of a merges.txt, which old files carry along.
bool IsVersionLine(simdjson::dom::element merge) {
  std::string_view text;
  return merge.get_string().get(text) == simdjson::SUCCESS && text.substr(0, 8) == "#version";
}

/// The two names of a merge, "a b" or ["a", "b"].
bool SplitMerge(simdjson::dom::element merge, std::string_view& left, std::string_view& right) {
  std::string_view text;
  if (merge.get_string().get(text) == simdjson::SUCCESS) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return false;
    left = text.substr(0, space);
    right = text.substr(space + 1);
    return true;
  }
  simdjson::dom::array pair;
  if (merge.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2) return false;
  return pair.at(0).get_string().get(left) == simdjson::SUCCESS &&
         pair.at(1).get_string().get(right) == simdjson::SUCCESS;
}

Status ReadMerges(const JsonNode& node, bool byte_level, BpeJson& bpe) {
  simdjson::dom::array array;
  if (node.element().get_array().get(array) != simdjson::SUCCESS) return node.Refuse("expected a list");
  bpe.parts.merges.Reserve(array.size());
  NameLookup lookup(bpe, byte_level);
  std::uint32_t rank = 0;
  std::string joined;
  for (const simdjson::dom::element merge : array) {
    std::string_view left;
    std::string_view right;
    if (IsVersionLine(merge)) continue;
    const auto refuse = [&](const std::string& why) {
      return InvalidInput(node.path() + "[" + std::to_string(rank) + "]: " + why);
    };
    if (!SplitMerge(merge, left, right))
      return refuse("expected two tokens, as text \"a b\" or as a list of two texts");
    joined.assign(left).append(right);
    const std::int32_t left_id = lookup.Find(left);
    const std::int32_t right_id = lookup.Find(right);
    const std::int32_t id = lookup.Find(joined);
    if (left_id < 0 || right_id < 0 || id < 0) {
      const std::string_view missing = left_id < 0 ? left : right_id < 0 ? right : std::string_view(joined);
      return refuse("token \"" + std::string(missing.substr(0, 100)) + "\" is not in the vocabulary");
    }
    bpe.parts.merges.Set(left_id, right_id, {rank, id});
    ++rank;
  }
  return OkStatus();
}

Status RefuseAffix(const JsonNode& model, std::string_view key) {
  const std::optional<JsonNode> member = model.Find(key);
  if (!member) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string_view text, member->AsString());
  return text.empty() ? OkStatus() : member->RefuseUnsupported("only an empty text or null is supported");
}

Status CheckFallback(const JsonNode& model, bool byte_level, const BpeParts& parts) {
  if (!byte_level || !parts.byte_fallback) return OkStatus();
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char content = static_cast<char>(byte);
    if (parts.vocabulary.Find({&content, 1}) < 0) {
      return model.RefuseUnsupported("byte_fallback in a byte-level vocabulary that lacks bytes");
    }
  }
  return OkStatus();
}

}  // namespace

Result<BpeJson> ReadBpeJson(const JsonNode& model, bool byte_level) {
  DRAFTMILL_RETURN_IF_ERROR(
      model.CheckKeys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (const std::optional<JsonNode> dropout = model.Find("dropout")) {
    double value = 0;
    if (dropout->element().get_double().get(value) != simdjson::SUCCESS || value != 0) {
      return dropout->RefuseUnsupported("only null is supported: ids must not depend on chance");
    }
  }
  DRAFTMILL_RETURN_IF_ERROR(RefuseAffix(model, "continuing_subword_prefix"));
  DRAFTMILL_RETURN_IF_ERROR(RefuseAffix(model, "end_of_word_suffix"));
  BpeJson bpe;
  bpe.parts.byte_units = byte_level;
  DRAFTMILL_ASSIGN_OR_RETURN(bpe.parts.fuse_unknown, model.Bool("fuse_unk", false));
  DRAFTMILL_ASSIGN_OR_RETURN(bpe.parts.byte_fallback, model.Bool("byte_fallback", false));
  DRAFTMILL_ASSIGN_OR_RETURN(bpe.parts.ignore_merges, model.Bool("ignore_merges", false));
  DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode vocabulary, model.Get("vocab"));
  DRAFTMILL_RETURN_IF_ERROR(ReadVocabulary(vocabulary, byte_level, bpe));
  DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode merges, model.Get("merges"));
  DRAFTMILL_RETURN_IF_ERROR(ReadMerges(merges, byte_level, bpe));
  DRAFTMILL_RETURN_IF_ERROR(CheckFallback(model, byte_level, bpe.parts));
  if (const std::optional<JsonNode> unknown = model.Find("unk_token")) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::string_view name, unknown->AsString());
    bpe.parts.unknown_id = NameLookup(bpe, byte_level).Find(name);
    if (bpe.parts.unknown_id < 0)
      return unknown->Refuse("token \"" + std::string(name) + "\" is not in the vocabulary");
  }
  return bpe;
}

}  // namespace draftmill
