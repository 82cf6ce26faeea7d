#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace draftmill::json {

Value::Value(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    data_ = static_cast<std::int64_t>(value);
  } else {
    data_ = BigInteger{std::to_string(value)};
  }
}

double Value::as_double() const {
  if (is_integer()) return static_cast<double>(as_integer());
  if (is_double()) return std::get<double>(data_);
  const std::string& digits = as_big_integer().digits;
  double value = 0;
  const std::from_chars_result result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec == std::errc()) return value;
  const double infinity = std::numeric_limits<double>::infinity();
  return digits.starts_with('-') ? -infinity : infinity;
}

const Value* Value::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Value* Value::Find(std::string_view key) {
  if (!is_object()) return nullptr;
  for (Member& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

void Value::Set(std::string_view key, Value value) {
  if (Value* found = Find(key)) {
    *found = std::move(value);
    return;
  }
  as_object().emplace_back(std::string(key), std::move(value));
}

std::string_view Value::KindName() const {
  switch (data_.index()) {
    case 0: return "null";
    case 1: return "a boolean";
    case 2:
    case 3: return "an integer";
    case 4: return "a number";
    case 5: return "text";
    case 6: return "a list";
    default: return "an object";
  }
}

bool operator==(const Value& a, const Value& b) { return a.data_ == b.data_; }

namespace {

/// Python's words for what JSON has no number for.
std::string_view NonFiniteWord(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

class Writer {
 public:
  Writer(Style style, std::string& out) : style_(style), out_(out) {}

  void Write(const Value& value) {
    if (value.is_null()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_number()) {
      WriteNumber(value);
    } else if (value.is_string()) {
      AppendQuoted(value.as_string(), out_);
    } else if (value.is_array()) {
      WriteArray(value.as_array());
    } else {
      WriteObject(value.as_object());
    }
  }

 private:
  void WriteNumber(const Value& value) {
    if (value.is_big_integer()) {
      out_ += value.as_big_integer().digits;
    } else if (value.is_double()) {
      const double number = value.as_double();
      if (std::isfinite(number)) {
        out_ += PythonRepr(number);
      } else {
        out_ += NonFiniteWord(number);
      }
    } else {
      char buffer[24];
      const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value.as_integer());
      out_.append(buffer, result.ptr);
    }
  }

  void WriteArray(const Array& array) {
    out_ += '[';
    Open();
    bool first = true;
    for (const Value& element : array) {
      Separate(first);
      Write(element);
    }
    Close(array.empty());
    out_ += ']';
  }

  void WriteObject(const Object& object) {
    out_ += '{';
    Open();
    bool first = true;
    if (style_ == Style::kCanonical && !IsSorted(object)) {
      for (const Member* member : Sorted(object)) WriteMember(*member, first);
    } else {
      for (const Member& member : object) WriteMember(member, first);
    }
    Close(object.empty());
    out_ += '}';
  }

  void WriteMember(const Member& member, bool& first) {
    Separate(first);
    AppendQuoted(member.first, out_);
    out_ += style_ == Style::kPretty ? ": " : ":";
    Write(member.second);
  }

  static bool IsSorted(const Object& object) {
    return std::is_sorted(object.begin(), object.end(),
                          [](const Member& a, const Member& b) { return a.first < b.first; });
  }

  static std::vector<const Member*> Sorted(const Object& object) {
    std::vector<const Member*> members;
    members.reserve(object.size());
    for (const Member& member : object) members.push_back(&member);
    std::stable_sort(members.begin(), members.end(),
                     [](const Member* a, const Member* b) { return a->first < b->first; });
    return members;
  }

  void Open() { ++depth_; }

  void Separate(bool& first) {
    if (!first) out_ += ',';
    first = false;
    NewLine();
  }

  void Close(bool empty) {
    --depth_;
    if (!empty) NewLine();
  }

  void NewLine() {
    if (style_ != Style::kPretty) return;
    out_ += '\n';
    out_.append(2 * static_cast<std::size_t>(depth_), ' ');
  }

  Style style_;
  std::string& out_;
  int depth_ = 0;
};

/// Whether a byte stands for itself between quotes.
constexpr bool IsPlain(unsigned char byte) { return byte >= 0x20 && byte != '"' && byte != '\\'; }

void AppendEscape(unsigned char byte, std::string& out) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  switch (byte) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default:
      out += "\\u00";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
  }
}

}  // namespace

std::string Write(const Value& value, Style style) {
  std::string out;
  Writer(style, out).Write(value);
  return out;
}

void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  std::size_t plain_from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (IsPlain(byte)) continue;
    out.append(text, plain_from, i - plain_from);
    AppendEscape(byte, out);
    plain_from = i + 1;
  }
  out.append(text, plain_from);
  out += '"';
}

std::string PythonRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value), std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(end.ptr - buffer));  // d[.ddd]e+XX
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);

  // Python's float_repr_style "short": an exponent below 1e-4 and from 1e16 on, with at least two digits.
  std::string text = std::signbit(value) ? "-" : "";
  const int digit_count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    text += digits[0];
    if (digit_count > 1) text.append(".").append(digits, 1);
    text += shortest.substr(e);
  } else if (exponent < 0) {
    text.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else if (digit_count <= exponent + 1) {
    text.append(digits).append(static_cast<std::size_t>(exponent + 1 - digit_count), '0').append(".0");
  } else {
    const auto whole = static_cast<std::size_t>(exponent + 1);
    text.append(digits, 0, whole).append(".").append(digits, whole);
  }
  return text;
}

}  // namespace draftmill::json
