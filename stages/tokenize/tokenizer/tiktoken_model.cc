#include "stages/tokenize/tokenizer/tiktoken_model.h"

#include <simdjson.h>

#include <array>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "stages/tokenize/tokenizer/bpe_tokenizer.h"
#include "stages/tokenize/tokenizer/json_node.h"
#include "stages/tokenize/tokenizer/pattern_scanners.h"

namespace draftmill {
namespace {

constexpr std::int32_t kReservedTokens = 256;
constexpr std::size_t kKimiRanks = 163'584;
constexpr std::size_t kMaxTokenBytes = 4096;

/// Names of Kimi-K2's reserved ids, from the tokenizer_config.json published with it; for a rank file that stands
/// alone.
const std::pair<std::int32_t, std::string_view> kKimiNames[] = {
    {163586, "<|im_end|>"},
    {163587, "<|im_user|>"},
    {163588, "<|im_assistant|>"},
    {163590, "<|start_header_id|>"},
    {163591, "<|end_header_id|>"},
    {163594, "<|im_system|>"},
    {163595, "<|tool_calls_section_begin|>"},
    {163596, "<|tool_calls_section_end|>"},
    {163597, "<|tool_call_begin|>"},
    {163598, "<|tool_call_argument_begin|>"},
    {163599, "<|tool_call_end|>"},
    {163601, "<|im_middle|>"},
};

std::array<std::int8_t, 256> MakeBase64Values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<std::uint8_t>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}

/// Decodes padded base64; false where it is not that.
bool DecodeBase64(std::string_view text, std::string& bytes) {
  static const std::array<std::int8_t, 256> kValues = MakeBase64Values();
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.back() != '=' ? 0 : text[text.size() - 2] == '=' ? 2 : 1;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    const std::size_t digits = i + 4 == text.size() ? 4 - padding : 4;
    for (std::size_t j = 0; j < digits; ++j) {
      const std::int8_t value = kValues[static_cast<std::uint8_t>(text[i + j])];
      if (value < 0) return false;
      group |= static_cast<std::uint32_t>(value) << (18 - 6 * j);
    }
    for (std::size_t j = 0; j + 1 < digits; ++j) bytes.push_back(static_cast<char>(group >> (16 - 8 * j) & 0xFFU));
    if (digits < 4 && (group & (digits == 2 ? 0xFFFFU : 0xFFU)) != 0) return false;
  }
  return true;
}

Status ReadRanks(std::string_view ranks, TokenTable& vocabulary) {
  vocabulary.Reserve(ranks.size() / 17 + 16, ranks.size() / 2);
  std::string bytes;
  std::int64_t line_number = 0;
  while (!ranks.empty()) {
    ++line_number;
    const std::size_t newline = ranks.find('\n');
    std::string_view line = ranks.substr(0, newline);
    ranks.remove_prefix(newline == std::string_view::npos ? ranks.size() : newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const auto refuse = [&](const char* why) {
      return InvalidInput("line " + std::to_string(line_number) + ": " + why);
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || !DecodeBase64(line.substr(0, space), bytes)) {
      return refuse("expected a token in base64, a space and a rank");
    }
    if (bytes.size() > kMaxTokenBytes) return refuse("a token of more than 4096 bytes");
    std::int32_t rank = -1;
    const char* const end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data() + space + 1, end, rank);
    if (error != std::errc() || rest != end || rank < 0 || rank > TokenTable::kMaxId - kReservedTokens) {
      return refuse("the rank is no number between 0 and 16776959");
    }
    switch (vocabulary.Add(bytes, rank)) {
      case TokenTable::AddResult::kAdded: break;
      case TokenTable::AddResult::kContentTaken: return refuse("the token stands there twice");
      case TokenTable::AddResult::kIdTaken: return refuse("the rank stands there twice");
    }
  }
  if (vocabulary.size() != static_cast<std::size_t>(vocabulary.id_limit())) {
    return InvalidInput("the ranks have gaps: " + std::to_string(vocabulary.size()) + " tokens, largest rank " +
                        std::to_string(vocabulary.id_limit() - 1));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char content = static_cast<char>(byte);
    if (vocabulary.Find({&content, 1}) < 0) return InvalidInput("no token for the byte " + std::to_string(byte));
  }
  return OkStatus();
}

/// All ways in which two tokens make a third: that is when tiktoken merges them, by the rank of the third.
MergeTable MakeMerges(const TokenTable& vocabulary) {
  struct Pair {
    std::int32_t left;
    std::int32_t right;
    std::int32_t whole;
  };
  std::vector<Pair> pairs;
  pairs.reserve(vocabulary.size() * 4);
  for (std::int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    const std::string_view content = vocabulary.Content(id);
    for (std::size_t cut = 1; cut < content.size(); ++cut) {
      const std::int32_t left = vocabulary.Find(content.substr(0, cut));
      if (left < 0) continue;
      const std::int32_t right = vocabulary.Find(content.substr(cut));
      if (right >= 0) pairs.push_back({left, right, id});
    }
  }
  MergeTable merges;
  merges.Reserve(pairs.size());
  for (const Pair& pair : pairs)
    merges.Set(pair.left, pair.right, {static_cast<std::uint32_t>(pair.whole), pair.whole});
  return merges;
}

struct KimiConfig {
  bool is_kimi = false;
  std::map<std::int64_t, std::string> names;
};

Status ReadConfig(const std::string& text, KimiConfig& config) {
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  if (parser.parse(text).get(element) != simdjson::SUCCESS || !element.is_object()) {
    return InvalidInput("tokenizer_config.json: not a JSON object");
  }
  const JsonNode root(element, "tokenizer_config.json: $");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string tokenizer_class, root.String("tokenizer_class", ""));
  config.is_kimi = tokenizer_class == "TikTokenTokenizer";
  const std::optional<JsonNode> decoder = root.Find("added_tokens_decoder");
  if (!decoder) return OkStatus();
  simdjson::dom::object entries;
  if (decoder->element().get_object().get(entries) != simdjson::SUCCESS) return decoder->Refuse("expected an object");
  for (const simdjson::dom::key_value_pair entry : entries) {
    const JsonNode node(entry.value, decoder->path() + "." + std::string(entry.key));
    std::int64_t id = -1;
    const char* const end = entry.key.data() + entry.key.size();
    const auto [rest, error] = std::from_chars(entry.key.data(), end, id);
    if (error != std::errc() || rest != end) return node.Refuse("the key is no id");
    DRAFTMILL_ASSIGN_OR_RETURN(std::string content, node.String("content"));
    if (content.empty()) return node.Refuse("an added token without content");
    if (!config.names.emplace(id, std::move(content)).second) return node.Refuse("the id stands there twice");
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> ParseTiktokenModel(std::string_view ranks,
                                                            const std::optional<std::string>& config_text) {
  BpeParts bpe;
  bpe.byte_units = true;
  bpe.ignore_merges = true;
  DRAFTMILL_RETURN_IF_ERROR(ReadRanks(ranks, bpe.vocabulary));
  KimiConfig config;
  if (config_text) {
    DRAFTMILL_RETURN_IF_ERROR(ReadConfig(*config_text, config));
  }
  const std::int32_t base = bpe.vocabulary.id_limit();
  if (!config.is_kimi && bpe.vocabulary.size() != kKimiRanks) {
    return Unsupported(
        "a rank file with " + std::to_string(base) +
        " ranks and no tokenizer_config.json beside it that names the class TikTokenTokenizer: its split "
        "pattern is not in the file, and only that of Kimi-K2 (163584 ranks) is known");
  }
  if (!config_text) {
    for (const auto& [id, name] : kKimiNames) config.names.emplace(id, name);
  }
  bpe.merges = MakeMerges(bpe.vocabulary);
  BpeTokenizerParts parts;
  StreamingHash hash;
  hash.Update(ranks);
  std::vector<AddedTokenRule> rules;
  for (std::int32_t id = base; id < base + kReservedTokens; ++id) {
    const auto named = config.names.find(id);
    AddedTokenRule rule;
    rule.content = named != config.names.end() ? named->second : "<|reserved_token_" + std::to_string(id) + "|>";
    rule.id = id;
    rule.special = true;
    parts.added_tokens.push_back({id, rule.content, true});
    hash.Update(rule.content);
    hash.Update(std::string_view("\n"));
    rules.push_back(std::move(rule));
  }
  parts.raw_matcher = AddedTokenMatcher(std::move(rules));
  parts.fingerprint = ToHex(hash.Digest128());
  parts.pre_tokenizer.AddSplitter(FindPatternScanner(kKimiPattern).splitter);
  parts.cuts = CutLimits{};
  parts.model = std::make_unique<const BpeModel>(std::move(bpe));
  return MakeBpeTokenizer(std::move(parts));
}

}  // namespace draftmill
