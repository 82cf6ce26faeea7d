#include "pipeline/reports/facts_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "pipeline/progress/format_units.h"

namespace draftmill {
namespace {

bool EndsWith(std::string_view name, std::string_view ending) {
  if (name == ending) return true;
  return name.size() > ending.size() && name.ends_with(ending) && name[name.size() - ending.size() - 1] == '_';
}

/// With spaces between words; before a number the underscore stays, as in x_2.
std::string NameForPeople(std::string_view name) {
  std::string text(name);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_index = i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '_' && !is_index) text[i] = ' ';
  }
  return text;
}

std::string NumberForPeople(std::string_view name, const json::Value& value) {
  if (EndsWith(name, "per_second")) return FormatRate(value.as_double()) + "/s";
  if (EndsWith(name, "seconds")) return FormatSeconds(value.as_double());
  if (!value.is_integer()) return value.is_double() ? fmt::format("{:.4g}", value.as_double()) : json::Write(value);
  if (EndsWith(name, "bytes") || EndsWith(name, "bytes_left")) return FormatBytes(value.as_integer());
  static constexpr std::array<std::string_view, 8> kPlain = {"id",    "line",  "offset", "chunk",
                                                             "batch", "block", "shard",  "ms"};
  const bool plain =
      std::any_of(kPlain.begin(), kPlain.end(), [&](std::string_view ending) { return EndsWith(name, ending); });
  return plain ? json::Write(value) : FormatCount(value.as_integer());
}

std::string ScalarForPeople(std::string_view name, const json::Value& value) {
  if (value.is_null()) return "-";
  if (value.is_bool()) return value.as_bool() ? "yes" : "no";
  if (value.is_string()) return value.as_string().empty() ? "-" : value.as_string();
  if (value.is_number()) return NumberForPeople(name, value);
  return json::Write(value);
}

bool IsTable(const json::Value& value) {
  if (!value.is_array() || value.as_array().empty()) return false;
  return std::all_of(value.as_array().begin(), value.as_array().end(),
                     [](const json::Value& row) { return row.is_object(); });
}

/// Width on a terminal, near enough: code points.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Table(const json::Array& rows, const std::string& indentation) {
  std::vector<std::string> names;
  for (const json::Value& row : rows) {
    for (const auto& [name, value] : row.as_object()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::vector<std::vector<std::string>> cells(rows.size() + 1);
  for (const std::string& name : names) cells[0].push_back(NameForPeople(name));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& name : names) {
      const json::Value* value = rows[i].Find(name);
      cells[i + 1].push_back(value == nullptr ? "" : ScalarForPeople(name, *value));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : cells) {
    std::string line = indentation;
    for (std::size_t column = 0; column < names.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : cells) width = std::max(width, Width(other[column]));
      const std::string padding(width - Width(row[column]), ' ');
      const json::Value* value = rows[0].Find(names[column]);
      const bool to_the_right = value != nullptr && value->is_number();
      line += (column > 0 ? "  " : "") + (to_the_right ? padding + row[column] : row[column] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void AppendFacts(const json::Value& facts, const std::string& indentation, std::string& text) {
  for (const auto& [name, value] : facts.as_object()) {
    const std::string heading = indentation + NameForPeople(name) + ":";
    if (value.is_object() && !value.as_object().empty()) {
      text += heading + "\n";
      AppendFacts(value, indentation + "  ", text);
    } else if (IsTable(value)) {
      text += heading + "\n" + Table(value.as_array(), indentation + "  ");
    } else if (value.is_array() && !value.as_array().empty() && value.as_array().front().is_string()) {
      text += heading + "\n";
      for (const json::Value& item : value.as_array()) text += indentation + "  " + ScalarForPeople(name, item) + "\n";
    } else {
      text +=
          heading + " " + (value.is_array() && value.as_array().empty() ? "none" : ScalarForPeople(name, value)) + "\n";
    }
  }
}

}  // namespace

std::string FactsAsText(const json::Value& facts) {
  std::string text;
  if (facts.is_object()) {
    AppendFacts(facts, "", text);
  } else if (IsTable(facts)) {
    text = Table(facts.as_array(), "");
  } else {
    text = ScalarForPeople("", facts) + "\n";
  }
  return text;
}

}  // namespace draftmill
