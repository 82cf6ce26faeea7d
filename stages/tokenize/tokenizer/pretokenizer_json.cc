#include "stages/tokenize/tokenizer/pretokenizer_json.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stages/tokenize/tokenizer/pattern_scanners.h"
#include "stages/tokenize/tokenizer/regex.h"
#include "stages/tokenize/tokenizer/regex_splitter.h"

namespace draftmill {
namespace {

constexpr int kMaxNesting = 8;

/// A `pattern` member: {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

Result<Pattern> ReadPattern(const JsonNode& owner) {
  DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode node, owner.Get("pattern"));
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"String", "Regex"}));
  Pattern pattern;
  pattern.is_regex = node.Find("Regex").has_value();
  if (pattern.is_regex == node.Find("String").has_value())
    return node.Refuse("expected one of \"String\" and \"Regex\"");
  DRAFTMILL_ASSIGN_OR_RETURN(pattern.text, node.String(pattern.is_regex ? "Regex" : "String"));
  if (pattern.text.empty()) return node.RefuseUnsupported("an empty pattern");
  return pattern;
}

Status ReadReplace(const JsonNode& node, std::vector<std::unique_ptr<const Normalizer>>& normalizers) {
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "pattern", "content"}));
  DRAFTMILL_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(node));
  DRAFTMILL_ASSIGN_OR_RETURN(std::string content, node.String("content"));
  if (!pattern.is_regex) {
    normalizers.push_back(MakeReplaceNormalizer(std::move(pattern.text), std::move(content)));
    return OkStatus();
  }
  Result<Regex> regex = Regex::Compile(pattern.text);
  if (!regex.ok()) return regex.status().WithContext(node.path() + ".pattern.Regex");
  normalizers.push_back(MakeReplaceNormalizer(std::move(regex).value(), std::move(content)));
  return OkStatus();
}

Status ReadNormalizer(const JsonNode& node, int depth, std::vector<std::unique_ptr<const Normalizer>>& normalizers) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  if (type == "Sequence") {
    if (depth == kMaxNesting) return node.RefuseUnsupported("sequences nested this deep");
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "normalizers"}));
    DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode list, node.Get("normalizers"));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) DRAFTMILL_RETURN_IF_ERROR(ReadNormalizer(item, depth + 1, normalizers));
    return OkStatus();
  }
  if (type == "Replace") return ReadReplace(node, normalizers);
  if (type == "Prepend") {
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "prepend"}));
    DRAFTMILL_ASSIGN_OR_RETURN(std::string prefix, node.String("prepend"));
    normalizers.push_back(MakePrependNormalizer(std::move(prefix)));
    return OkStatus();
  }
  if (type == "Strip") {
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "strip_left", "strip_right"}));
    DRAFTMILL_ASSIGN_OR_RETURN(const bool left, node.Bool("strip_left"));
    DRAFTMILL_ASSIGN_OR_RETURN(const bool right, node.Bool("strip_right"));
    normalizers.push_back(MakeStripNormalizer(left, right));
    return OkStatus();
  }
  static constexpr std::string_view kPlain[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"};
  if (std::find(std::begin(kPlain), std::end(kPlain), type) == std::end(kPlain)) {
    return node.RefuseUnsupported("normalizer \"" + type + "\"");
  }
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type"}));
  if (type == "NFC") {
    normalizers.push_back(MakeNormalFormNormalizer(NormalForm::kNfc));
  } else if (type == "NFD") {
    normalizers.push_back(MakeNormalFormNormalizer(NormalForm::kNfd));
  } else if (type == "NFKC") {
    normalizers.push_back(MakeNormalFormNormalizer(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    normalizers.push_back(MakeNormalFormNormalizer(NormalForm::kNfkd));
  } else {
    normalizers.push_back(MakeLowercaseNormalizer());
  }
  return OkStatus();
}

Result<SplitBehavior> ReadBehavior(const JsonNode& node, std::optional<std::string> missing) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string name, node.String("behavior", std::move(missing)));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.RefuseUnsupported("behavior \"" + name + "\"");
}

/// Adds a step that cuts; after ByteLevel it sees the byte alphabet.
void AddSplitter(std::unique_ptr<const PieceSplitter> splitter, PreTokenizerJson& result) {
  if (result.byte_level) splitter = MakeStandInSplitter(std::move(splitter));
  result.pre_tokenizer.AddSplitter(std::move(splitter));
}

Status ReadSplit(const JsonNode& node, PreTokenizerJson& result) {
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "pattern", "behavior", "invert"}));
  DRAFTMILL_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(node));
  DRAFTMILL_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(node, std::nullopt));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool invert, node.Bool("invert"));
  if (!pattern.is_regex) {
    AddSplitter(MakeLiteralSplitter(std::move(pattern.text), behavior, invert), result);
    return OkStatus();
  }
  PatternScanner scanner = FindPatternScanner(pattern.text);
  const bool isolates = behavior == SplitBehavior::kIsolated && !invert;
  const bool keeps_matches = behavior == SplitBehavior::kRemoved && invert && scanner.covers_everything;
  if (scanner.splitter != nullptr && (isolates || keeps_matches)) {
    AddSplitter(std::move(scanner.splitter), result);
    return OkStatus();
  }
  Result<Regex> regex = Regex::Compile(pattern.text);
  if (!regex.ok()) return regex.status().WithContext(node.path() + ".pattern.Regex");
  AddSplitter(MakeRegexSplitter(std::move(regex).value(), behavior, invert), result);
  return OkStatus();
}

Status ReadMetaspace(const JsonNode& node, PreTokenizer& pre_tokenizer) {
  DRAFTMILL_RETURN_IF_ERROR(
      node.CheckKeys({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  DRAFTMILL_ASSIGN_OR_RETURN(std::string replacement, node.String("replacement"));
  if (replacement.empty()) return node.Refuse("an empty replacement");
  DRAFTMILL_ASSIGN_OR_RETURN(std::string scheme_name, node.String("prepend_scheme", "always"));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool split, node.Bool("split", true));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space", true));
  // The older spelling: without a scheme, add_prefix_space decides between always and never.
  if (!add_prefix_space) {
    if (node.Find("prepend_scheme") && scheme_name != "never") {
      return node.Refuse("add_prefix_space is false, but prepend_scheme is \"" + scheme_name + "\"");
    }
    scheme_name = "never";
  }
  PrependScheme scheme = PrependScheme::kAlways;
  if (scheme_name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (scheme_name == "never") {
    scheme = PrependScheme::kNever;
  } else if (scheme_name != "always") {
    return node.RefuseUnsupported("prepend_scheme \"" + scheme_name + "\"");
  }
  pre_tokenizer.AddMetaspace(std::move(replacement), scheme, split);
  return OkStatus();
}

Status ReadByteLevel(const JsonNode& node, PreTokenizerJson& result) {
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space"));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool use_regex, node.Bool("use_regex", true));
  if (add_prefix_space) result.pre_tokenizer.AddPrefixSpace();
  if (use_regex) result.pre_tokenizer.AddSplitter(FindPatternScanner(kGpt2Pattern).splitter);
  result.byte_level = true;
  return OkStatus();
}

Status ReadPreTokenizer(const JsonNode& node, int depth, PreTokenizerJson& result) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  if (type == "Sequence") {
    if (depth == kMaxNesting) return node.RefuseUnsupported("sequences nested this deep");
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "pretokenizers"}));
    DRAFTMILL_ASSIGN_OR_RETURN(const JsonNode list, node.Get("pretokenizers"));
    DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) DRAFTMILL_RETURN_IF_ERROR(ReadPreTokenizer(item, depth + 1, result));
    return OkStatus();
  }
  if (type == "Split") return ReadSplit(node, result);
  if (type == "Digits") {
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "individual_digits"}));
    DRAFTMILL_ASSIGN_OR_RETURN(const bool individual_digits, node.Bool("individual_digits"));
    AddSplitter(MakeDigitsSplitter(individual_digits), result);
    return OkStatus();
  }
  if (type == "Punctuation") {
    DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type", "behavior"}));
    DRAFTMILL_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(node, "Isolated"));
    AddSplitter(MakePunctuationSplitter(behavior), result);
    return OkStatus();
  }
  if (result.byte_level) return node.RefuseUnsupported("\"" + type + "\" after ByteLevel");
  if (type == "ByteLevel") return ReadByteLevel(node, result);
  if (type == "Metaspace") return ReadMetaspace(node, result.pre_tokenizer);
  if (type != "Whitespace" && type != "WhitespaceSplit") {
    return node.RefuseUnsupported("pre-tokenizer \"" + type + "\"");
  }
  DRAFTMILL_RETURN_IF_ERROR(node.CheckKeys({"type"}));
  AddSplitter(type == "Whitespace" ? MakeWhitespaceSplitter() : MakeWhitespaceOnlySplitter(), result);
  return OkStatus();
}

}  // namespace

Status ReadNormalizerJson(const JsonNode& node, std::vector<std::unique_ptr<const Normalizer>>& normalizers) {
  return ReadNormalizer(node, 0, normalizers);
}

Result<PreTokenizerJson> ReadPreTokenizerJson(const JsonNode& node) {
  PreTokenizerJson result;
  DRAFTMILL_RETURN_IF_ERROR(ReadPreTokenizer(node, 0, result));
  return result;
}

}  // namespace draftmill
