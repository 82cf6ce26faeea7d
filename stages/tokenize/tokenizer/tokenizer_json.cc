#include "stages/tokenize/tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stages/tokenize/tokenizer/bpe_json.h"
#include "stages/tokenize/tokenizer/bpe_tokenizer.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"
#include "stages/tokenize/tokenizer/json_node.h"
#include "stages/tokenize/tokenizer/pretokenizer_json.h"

namespace draftmill {
namespace {

/// Far above any real file, whose deepest value is a merge or a nested pre-tokenizer.
constexpr std::size_t kMaxDepth = 64;

/// Hands out ids as `tokenizers` does: the vocabulary's where it has the content, else the next free number. A file
/// that says otherwise is refused, because its model's own code would not use the file's number.
class AddedIds {
 public:
  AddedIds(const BpeJson& bpe, bool byte_level) : bpe_(bpe), byte_level_(byte_level) {}

  std::int64_t IdOf(const std::string& content) {
    const auto known = ids_.find(content);
    if (known != ids_.end()) return known->second;
    std::int64_t id = VocabularyId(content);
    if (id < 0) id = largest_ < bpe_.size ? bpe_.size : largest_ + 1;
    largest_ = std::max(largest_, id);
    ids_.emplace(content, id);
    return id;
  }

 private:
  std::int64_t VocabularyId(const std::string& content) const {
    for (const auto& [name, id] : bpe_.names) {
      if (name == content) return id;
    }
    if (!byte_level_) return bpe_.parts.vocabulary.Find(content);
    const std::optional<std::string> bytes = BytesOfByteLevel(content);
    return bytes ? bpe_.parts.vocabulary.Find(*bytes) : -1;
  }

  const BpeJson& bpe_;
  bool byte_level_;
  std::int64_t largest_ = -1;
  std::unordered_map<std::string, std::int64_t> ids_;
};

struct AddedTokensJson {
  std::vector<AddedTokenRule> raw;
  std::vector<AddedTokenRule> normalized;
  std::vector<AddedToken> tokens;
};

/// Reads one entry of `added_tokens`; `normalized` says whether it is matched after normalization.
Result<AddedTokenRule> ReadAddedToken(const JsonNode& node, AddedIds& ids, bool& normalized) {
  DRAFTMILL_RETURN_IF_ERROR(
      node.CheckKeys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedTokenRule rule;
  DRAFTMILL_ASSIGN_OR_RETURN(rule.content, node.String("content"));
  DRAFTMILL_ASSIGN_OR_RETURN(rule.special, node.Bool("special"));
  DRAFTMILL_ASSIGN_OR_RETURN(rule.single_word, node.Bool("single_word"));
  DRAFTMILL_ASSIGN_OR_RETURN(rule.lstrip, node.Bool("lstrip"));
  DRAFTMILL_ASSIGN_OR_RETURN(rule.rstrip, node.Bool("rstrip"));
  DRAFTMILL_ASSIGN_OR_RETURN(normalized, node.Bool("normalized"));
  DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode id_node, node.Get("id"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t id, id_node.AsInteger());
  if (rule.content.empty()) return node.Refuse("an added token without content");
  if (id < 0 || id > TokenTable::kMaxId) return id_node.Refuse("not between 0 and 16777215");
  const std::int64_t own = ids.IdOf(rule.content);
  if (own != id) {
    return id_node.Refuse("the file gives \"" + rule.content.substr(0, 100) + "\" the id " + std::to_string(id) +
                          ", the model's own library would give it " + std::to_string(own));
  }
  rule.id = static_cast<std::int32_t>(id);
  return rule;
}

/// The content as it stands in normalized text.
Result<std::string> Normalized(const std::vector<std::unique_ptr<const Normalizer>>& normalizers,
                               const std::string& content) {
  AlignedBuffer buffers[2];
  DRAFTMILL_ASSIGN_OR_RETURN(const AlignedText text, ApplyAll(normalizers, AlignedText{content}, buffers));
  return std::string(text.text);
}

Result<AddedTokensJson> ReadAddedTokens(const JsonNode& root, const BpeJson& bpe, bool byte_level,
                                        const std::vector<std::unique_ptr<const Normalizer>>& normalizers) {
  AddedTokensJson result;
  const std::optional<JsonNode> list = root.Find("added_tokens");
  if (!list) return result;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list->Items());
  AddedIds ids(bpe, byte_level);
  std::set<std::int32_t> seen;
  std::vector<std::pair<AddedTokenRule, bool>> rules;
  for (const JsonNode& item : items) {
    bool normalized = false;
    DRAFTMILL_ASSIGN_OR_RETURN(AddedTokenRule rule, ReadAddedToken(item, ids, normalized));
    if (!seen.insert(rule.id).second)
      return item.Refuse("the token " + std::to_string(rule.id) + " stands there twice");
    result.tokens.push_back({rule.id, rule.content, rule.special});
    rules.emplace_back(std::move(rule), normalized);
  }
  // Of tokens that become the same text, special ones win.
  std::stable_partition(rules.begin(), rules.end(), [](const auto& rule) { return rule.first.special; });
  for (auto& [rule, normalized] : rules) {
    if (normalized) {
      DRAFTMILL_ASSIGN_OR_RETURN(rule.content, Normalized(normalizers, rule.content));
    }
    (normalized ? result.normalized : result.raw).push_back(std::move(rule));
  }
  std::sort(result.tokens.begin(), result.tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return result;
}

Result<std::unique_ptr<const Tokenizer>> Build(const JsonNode& root, std::string fingerprint) {
  DRAFTMILL_RETURN_IF_ERROR(root.CheckKeys({"version", "truncation", "padding", "added_tokens", "normalizer",
                                            "pre_tokenizer", "post_processor", "decoder", "model"}));
  DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode model, root.Get("model"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string type, model.String("type", "BPE"));
  if (type != "BPE") return model.RefuseUnsupported("model \"" + type + "\"; only BPE is supported");
  BpeTokenizerParts parts;
  parts.fingerprint = std::move(fingerprint);
  if (const std::optional<JsonNode> node = root.Find("normalizer")) {
    DRAFTMILL_RETURN_IF_ERROR(ReadNormalizerJson(*node, parts.normalizers));
  }
  if (const std::optional<JsonNode> node = root.Find("pre_tokenizer")) {
    DRAFTMILL_ASSIGN_OR_RETURN(PreTokenizerJson pre_tokenizer, ReadPreTokenizerJson(*node));
    parts.pre_tokenizer = std::move(pre_tokenizer.pre_tokenizer);
    parts.byte_level_names = pre_tokenizer.byte_level;
  }
  DRAFTMILL_ASSIGN_OR_RETURN(BpeJson bpe, ReadBpeJson(model, parts.byte_level_names));
  DRAFTMILL_ASSIGN_OR_RETURN(AddedTokensJson added,
                             ReadAddedTokens(root, bpe, parts.byte_level_names, parts.normalizers));
  parts.names = std::move(bpe.names);
  parts.added_tokens = std::move(added.tokens);
  parts.raw_matcher = AddedTokenMatcher(std::move(added.raw));
  parts.normalized_matcher = AddedTokenMatcher(std::move(added.normalized));
  parts.model = std::make_unique<const BpeModel>(std::move(bpe.parts));
  return MakeBpeTokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> ParseTokenizerJson(const std::string& json, std::string fingerprint) {
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  simdjson::error_code error = parser.allocate(std::max<std::size_t>(json.size(), 64), kMaxDepth);
  if (error == simdjson::SUCCESS) error = parser.parse(json).get(element);
  if (error != simdjson::SUCCESS) {
    return InvalidInput(std::string("not valid JSON (") + simdjson::error_message(error) + ")");
  }
  if (!element.is_object()) return InvalidInput("$: expected an object");
  return Build(JsonNode(element, "$"), std::move(fingerprint));
}

}  // namespace draftmill
