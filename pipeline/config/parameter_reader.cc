#include "pipeline/config/parameter_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "pipeline/config/nearest_name.h"
#include "pipeline/config/units.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

using yaml::Kind;
using yaml::Node;

constexpr std::size_t kMaxQuotedCharacters = 60;

/// A piece of the file for a message: short and on one line.
std::string Quoted(std::string_view text) {
  std::string shown(text.substr(0, kMaxQuotedCharacters));
  // Not within a UTF-8 sequence.
  while (text.size() > shown.size() && !shown.empty() &&
         (static_cast<unsigned char>(text[shown.size()]) & 0xC0) == 0x80) {
    shown.pop_back();
  }
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return "`" + shown + (text.size() > shown.size() ? "...`" : "`");
}

std::string DescribeNode(const Node& node) {
  switch (node.kind) {
    case Kind::kNull: return "empty";
    case Kind::kSequence: return "a list";
    case Kind::kMapping: return "a mapping";
    case Kind::kScalar: break;
  }
  return node.quoted ? "the text \"" + Quoted(node.text).substr(1, Quoted(node.text).size() - 2) + "\""
                     : Quoted(node.text);
}

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool LooksLikeInteger(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return IsDigits(text);
}

std::optional<std::int64_t> AsInteger(std::string_view text) {
  if (!LooksLikeInteger(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// YAML 1.2 core schema: digits with a point or an exponent; infinities and NaN stay text and are refused as such.
std::optional<double> AsNumber(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const bool has_digit = std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!has_digit || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> AsBool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

bool LooksLikeText(const Node& node) {
  return node.quoted || (!AsNumber(node.text) && !AsInteger(node.text) && !AsBool(node.text));
}

std::string HintForInteger(const std::string& text, bool plain) {
  if (!plain) return AsInteger(text) ? "write it without quotes" : "";
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number && !AsInteger(text) ? "the largest integer is 9223372036854775807" : "";
}

std::string HintForBool(std::string_view text) {
  static constexpr std::string_view kTrue[] = {"yes", "on", "y", "1", "Yes", "On", "YES", "ON"};
  static constexpr std::string_view kFalse[] = {"no", "off", "n", "0", "No", "Off", "NO", "OFF"};
  if (std::find(std::begin(kTrue), std::end(kTrue), text) != std::end(kTrue)) return "did you mean `true`?";
  if (std::find(std::begin(kFalse), std::end(kFalse), text) != std::end(kFalse)) return "did you mean `false`?";
  return "";
}

std::string BoundAsText(const ParameterSpec& spec, double bound) {
  if (spec.type == ParameterType::kBytes) return FormatByteSizeExact(static_cast<std::int64_t>(bound));
  if (spec.type == ParameterType::kDuration) return FormatDurationExact(static_cast<std::int64_t>(bound));
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) return fmt::format("{}", static_cast<std::int64_t>(bound));
  return fmt::format("{}", bound);
}

std::string RangeAsText(const ParameterSpec& spec) {
  if (spec.minimum && spec.maximum) {
    return " from " + BoundAsText(spec, *spec.minimum) + " to " + BoundAsText(spec, *spec.maximum);
  }
  if (spec.minimum) return " of at least " + BoundAsText(spec, *spec.minimum);
  if (spec.maximum) return " of at most " + BoundAsText(spec, *spec.maximum);
  return "";
}

std::string ListOfWords(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += "`" + words[i] + "`";
  }
  return list;
}

std::string DescribeType(const ParameterSpec& spec) {
  switch (spec.type) {
    case ParameterType::kInteger: return "an integer" + RangeAsText(spec);
    case ParameterType::kNumber: return "a number" + RangeAsText(spec);
    case ParameterType::kBool: return "`true` or `false`";
    case ParameterType::kText: return "text";
    case ParameterType::kPath: return "a path";
    case ParameterType::kChoice: return (spec.choices.size() > 1 ? "one of " : "") + ListOfWords(spec.choices);
    case ParameterType::kBytes: return "a size such as `256MiB`" + RangeAsText(spec);
    case ParameterType::kDuration: return "a duration such as `90s`" + RangeAsText(spec);
    case ParameterType::kTextList: return "a list of text";
    case ParameterType::kIntegerList:
      return "a list of integers" + (RangeAsText(spec).empty() ? "" : ", each" + RangeAsText(spec));
    case ParameterType::kMapping: {
      std::string fields;
      for (const ParameterSpec& field : spec.fields) {
        fields += (fields.empty() ? " `{" : ", ") + field.name + ": " +
                  (field.default_yaml.empty() ? "..." : field.default_yaml);
      }
      return "a mapping" + (fields.empty() ? "" : fields + "}`");
    }
    case ParameterType::kSources: return "a list of sources such as `- {path: data/chat.jsonl}`";
  }
  return "";
}

/// A plain scalar that YAML reads back as the same text.
bool IsPlainSafe(std::string_view text) {
  if (text.empty() || text == "null" || text == "~" || AsNumber(text) || AsInteger(text) || AsBool(text)) return false;
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+";
  return text[0] != '-' && text.find_first_not_of(kSafe) == std::string_view::npos;
}

bool IsWordOf(const ParameterSpec& spec, const json::Value& value) {
  return value.is_string() && std::find(spec.words.begin(), spec.words.end(), value.as_string()) != spec.words.end();
}

std::string AsFlowYaml(const json::Value& value) {
  if (value.is_string()) return IsPlainSafe(value.as_string()) ? value.as_string() : json::Write(value);
  std::string text;
  if (value.is_array()) {
    for (const json::Value& item : value.as_array()) text += (text.empty() ? "" : ", ") + AsFlowYaml(item);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.as_object()) {
      text += (text.empty() ? "" : ", ") + (IsPlainSafe(key) ? key : json::Write(json::Value(key))) + ": " +
              AsFlowYaml(item);
    }
    return "{" + text + "}";
  }
  return json::Write(value);
}

}  // namespace

std::string DescribeExpected(const ParameterSpec& spec) {
  std::string expected = DescribeType(spec);
  if (!spec.words.empty()) expected += (spec.words.size() > 1 ? ", or one of " : ", or ") + ListOfWords(spec.words);
  return expected;
}

std::string ValueAsYaml(const ParameterSpec& spec, const json::Value& value) {
  if (value.is_integer() && spec.type == ParameterType::kBytes) return FormatByteSizeExact(value.as_integer());
  if (value.is_integer() && spec.type == ParameterType::kDuration) return FormatDurationExact(value.as_integer());
  if (IsWordOf(spec, value)) return value.as_string();  // as the file and the documents write it, `false` too
  return AsFlowYaml(value);
}

json::Value ValueAsJson(const ParameterSpec& spec, const json::Value& value) {
  const std::optional<bool> flag = IsWordOf(spec, value) ? AsBool(value.as_string()) : std::nullopt;
  return flag ? json::Value(*flag) : value;
}

std::string UnknownKeyMessage(std::string_view key, const std::string& where, const std::vector<std::string>& names) {
  std::string message = "unknown key " + Quoted(key) + (where.empty() ? "" : " in " + where);
  if (const auto nearest = NearestName(key, names)) return message + "; did you mean `" + *nearest + "`?";
  for (const std::string& name : names) message += (&name == &names.front() ? "; known are " : ", ") + name;
  return message;
}

/// A path as shells expand it. Taken as it stands it would make a folder of that name.
bool MeansToBeExpanded(std::string_view path) {
  return path == "~" || path.starts_with("~/") || path.find("${") != std::string_view::npos;
}

std::string ResolvePath(std::string_view base_folder, std::string_view path) {
  const std::filesystem::path given(path);
  const std::filesystem::path full = given.is_absolute() ? given : std::filesystem::path(base_folder) / given;
  return WithoutTrailingSlash(full.lexically_normal().string());
}

std::nullopt_t ParameterReader::Refuse(const ParameterSpec& spec, const Node& node, const std::string& full_name,
                                       const std::string& hint) {
  AddProblem(node.place, "`" + full_name + "` must be " + DescribeExpected(spec) + ", not " + DescribeNode(node) +
                             (hint.empty() ? "" : "; " + hint));
  return std::nullopt;
}

bool ParameterReader::InRange(const ParameterSpec& spec, double value) const {
  return (!spec.minimum || value >= *spec.minimum) && (!spec.maximum || value <= *spec.maximum);
}

std::optional<json::Value> ParameterReader::Read(const ParameterSpec& spec, const Node& node,
                                                 const std::string& full_name) {
  if (node.kind == Kind::kScalar && std::find(spec.words.begin(), spec.words.end(), node.text) != spec.words.end()) {
    return json::Value(node.text);
  }
  return ReadTyped(spec, node, full_name);
}

std::optional<json::Value> ParameterReader::ReadTyped(const ParameterSpec& spec, const Node& node,
                                                      const std::string& full_name) {
  switch (spec.type) {
    case ParameterType::kTextList:
    case ParameterType::kIntegerList: return ReadList(spec, node, full_name);
    case ParameterType::kMapping:
      if (node.kind != Kind::kMapping) return Refuse(spec, node, full_name);
      return spec.fields.empty() ? ReadFreeMapping(node, full_name) : ReadFields(spec, node, full_name);
    case ParameterType::kSources: return ReadSources(spec, node, full_name);
    default: return node.kind == Kind::kScalar ? ReadScalar(spec, node, full_name) : Refuse(spec, node, full_name);
  }
}

std::optional<json::Value> ParameterReader::ReadScalar(const ParameterSpec& spec, const Node& node,
                                                       const std::string& full_name) {
  const bool plain = !node.quoted;
  const auto quantity = [&](const Result<std::int64_t>& read) -> std::optional<json::Value> {
    if (!read.ok()) return Refuse(spec, node, full_name, "it " + read.status().message());
    if (!InRange(spec, static_cast<double>(*read))) return Refuse(spec, node, full_name);
    return json::Value(*read);
  };
  switch (spec.type) {
    case ParameterType::kInteger:
      if (const auto value = AsInteger(node.text); plain && value && InRange(spec, static_cast<double>(*value)))
        return json::Value(*value);
      return Refuse(spec, node, full_name, HintForInteger(node.text, plain));
    case ParameterType::kNumber:
      if (const auto value = AsNumber(node.text); plain && value && InRange(spec, *value)) return json::Value(*value);
      return Refuse(spec, node, full_name, !plain && AsNumber(node.text) ? "write it without quotes" : "");
    case ParameterType::kBool:
      if (const auto value = AsBool(node.text); plain && value) return json::Value(*value);
      return Refuse(spec, node, full_name, HintForBool(node.text));
    case ParameterType::kText:
      if (!LooksLikeText(node)) return Refuse(spec, node, full_name, "write it in quotes if it is meant as text");
      if (const Status usable = spec.check ? spec.check(node.text) : OkStatus(); !usable.ok()) {
        AddProblem(node.place, "`" + full_name + "`: " + usable.message());
        return std::nullopt;
      }
      return json::Value(node.text);
    case ParameterType::kPath:
      if (node.text.empty()) return Refuse(spec, node, full_name);
      if (MeansToBeExpanded(node.text)) {
        return Refuse(spec, node, full_name,
                      "~ and ${NAME} are not expanded: write the whole path (or ./~ for a folder of that name)");
      }
      return json::Value(ResolvePath(base_folder_, node.text));
    case ParameterType::kBytes: return quantity(ParseByteSize(node.text));
    case ParameterType::kDuration: return quantity(ParseDurationMs(node.text));
    default: break;
  }
  if (std::find(spec.choices.begin(), spec.choices.end(), node.text) != spec.choices.end())
    return json::Value(node.text);
  std::vector<std::string> names = spec.choices;
  names.insert(names.end(), spec.words.begin(), spec.words.end());
  const auto nearest = NearestName(node.text, names);
  return Refuse(spec, node, full_name, nearest ? "did you mean `" + *nearest + "`?" : "");
}

std::optional<json::Value> ParameterReader::ReadList(const ParameterSpec& spec, const Node& node,
                                                     const std::string& full_name) {
  if (node.kind != Kind::kSequence) return Refuse(spec, node, full_name);
  ParameterSpec item_spec = spec;
  item_spec.words.clear();
  item_spec.type = spec.type == ParameterType::kTextList ? ParameterType::kText : ParameterType::kInteger;
  json::Array items;
  const std::size_t problems_before = problems_.size();
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    auto item = Read(item_spec, node.items[i], full_name + "[" + std::to_string(i) + "]");
    if (item) items.push_back(*std::move(item));
  }
  if (problems_.size() > problems_before) return std::nullopt;
  return json::Value(std::move(items));
}

std::optional<json::Value> ParameterReader::ReadSources(const ParameterSpec& spec, const Node& node,
                                                        const std::string& full_name) {
  if (node.kind != Kind::kSequence) return Refuse(spec, node, full_name);
  if (node.items.empty()) {
    AddProblem(node.place, "`" + full_name + "` is empty: there is nothing to ingest; name at least one source");
    return std::nullopt;
  }
  json::Array sources;
  const std::size_t problems_before = problems_.size();
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    auto source = ReadSource(spec, node.items[i], full_name + "[" + std::to_string(i) + "]");
    if (source) sources.push_back(*std::move(source));
  }
  if (problems_.size() > problems_before) return std::nullopt;
  return json::Value(std::move(sources));
}

std::optional<json::Value> ParameterReader::ReadSource(const ParameterSpec& spec, const Node& node,
                                                       const std::string& full_name) {
  static const std::vector<std::string> kKeys = {"path", "format", "take"};
  if (node.kind != Kind::kMapping) {
    AddProblem(node.place,
               "`" + full_name + "` must be a mapping such as `{path: data/chat.jsonl}`, not " + DescribeNode(node));
    return std::nullopt;
  }
  json::Object source;
  const std::size_t problems_before = problems_.size();
  for (const yaml::Member& member : node.members) {
    const std::string name = full_name + "." + member.key;
    ParameterSpec field;
    if (member.key == "path") {
      field.type = ParameterType::kPath;
    } else if (member.key == "format") {
      field.type = spec.choices.empty() ? ParameterType::kText : ParameterType::kChoice;
      field.choices = spec.choices;
    } else if (member.key == "take") {
      const auto rows = AsInteger(member.value.text);
      const auto share = AsNumber(member.value.text);
      const bool is_scalar = member.value.kind == Kind::kScalar && !member.value.quoted;
      if (is_scalar && rows && *rows >= 1) {
        source.emplace_back(member.key, json::Value(*rows));
      } else if (is_scalar && !rows && share && *share > 0 && *share <= 1) {
        source.emplace_back(member.key, json::Value(*share));
      } else {
        AddProblem(member.value.place,
                   "`" + name + "` must be a number of rows (an integer of at least 1) or a fraction such as " +
                       "`0.25` (above 0, at most 1.0), not " + DescribeNode(member.value));
      }
      continue;
    } else {
      AddProblem(member.place, UnknownKeyMessage(member.key, "`" + full_name + "`", kKeys));
      continue;
    }
    if (auto value = Read(field, member.value, name)) source.emplace_back(member.key, *std::move(value));
  }
  if (problems_.size() > problems_before) return std::nullopt;
  json::Value value(std::move(source));
  if (value.Find("path") == nullptr) {
    AddProblem(node.place, "`" + full_name + "` has no `path`");
    return std::nullopt;
  }
  return value;
}

std::optional<json::Value> ParameterReader::ReadFields(const ParameterSpec& spec, const Node& node,
                                                       const std::string& full_name) {
  const std::size_t problems_before = problems_.size();
  std::vector<std::string> names;
  for (const ParameterSpec& field : spec.fields) names.push_back(field.name);
  for (const yaml::Member& member : node.members) {
    if (std::find(names.begin(), names.end(), member.key) != names.end()) continue;
    AddProblem(member.place, UnknownKeyMessage(member.key, "`" + full_name + "`", names));
  }
  json::Object object;
  for (const ParameterSpec& field : spec.fields) {
    const std::string name = full_name + "." + field.name;
    const auto given = std::find_if(node.members.begin(), node.members.end(),
                                    [&](const yaml::Member& member) { return member.key == field.name; });
    if (given != node.members.end()) {
      if (auto value = Read(field, given->value, name)) object.emplace_back(field.name, *std::move(value));
    } else if (!field.default_yaml.empty()) {
      object.emplace_back(field.name, Default(field, name));
    } else {
      AddProblem(node.place, "`" + name + "` is missing: it must be given, as " + DescribeExpected(field));
    }
  }
  if (problems_.size() > problems_before) return std::nullopt;
  return json::Value(std::move(object));
}

std::optional<json::Value> ParameterReader::ReadFreeMapping(const Node& node, const std::string& full_name) {
  json::Object object;
  for (const yaml::Member& member : node.members) {
    auto value = ReadFree(member.value, full_name + "." + member.key);
    if (!value) return std::nullopt;
    object.emplace_back(member.key, *std::move(value));
  }
  return json::Value(std::move(object));
}

std::optional<json::Value> ParameterReader::ReadFree(const Node& node, const std::string& full_name) {
  if (node.kind == Kind::kNull) return json::Value();
  if (node.kind == Kind::kMapping) return ReadFreeMapping(node, full_name);
  if (node.kind == Kind::kSequence) {
    json::Array items;
    for (const Node& item : node.items) {
      auto value = ReadFree(item, full_name);
      if (!value) return std::nullopt;
      items.push_back(*std::move(value));
    }
    return json::Value(std::move(items));
  }
  if (node.quoted) return json::Value(node.text);
  if (const auto value = AsBool(node.text)) return json::Value(*value);
  if (const auto value = AsInteger(node.text)) return json::Value(*value);
  if (LooksLikeInteger(node.text)) {
    AddProblem(node.place, "`" + full_name + "` is an integer out of range: " + Quoted(node.text));
    return std::nullopt;
  }
  if (const auto value = AsNumber(node.text)) return json::Value(*value);
  return json::Value(node.text);
}

json::Value ParameterReader::Default(const ParameterSpec& spec, const std::string& full_name) {
  const yaml::Document document = yaml::ParseDocument(spec.default_yaml);
  DRAFTMILL_CHECK(document.problems.empty(), "the default of `" + full_name + "` is no YAML");
  ParameterReader reader(base_folder_);
  auto value = reader.Read(spec, document.root, full_name);
  DRAFTMILL_CHECK(value.has_value(), "the declared default is refused: " + reader.problems().front().message);
  return *std::move(value);
}

Result<json::Value> ReadParameterText(const ParameterSpec& spec, const std::string& full_name, std::string_view text,
                                      const std::string& base_folder) {
  const yaml::Document document = yaml::ParseDocument(text);
  if (!document.problems.empty()) {
    return InvalidConfig("`" + full_name + "`: " + document.problems.front().message);
  }
  ParameterReader reader(base_folder);
  auto value = reader.Read(spec, document.root, full_name);
  if (!value) return InvalidConfig(reader.problems().front().message);
  return *std::move(value);
}

}  // namespace draftmill
