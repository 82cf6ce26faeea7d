// The strict parser of base/json.h: recursive descent over a text whose UTF-8 was checked as a whole before (RFC 8259,
// with I-JSON's refusal of duplicate keys and lone surrogates, RFC 7493).
#include <array>
#include <charconv>
#include <set>

#include "base/json.h"
#include "base/utf8.h"

namespace draftmill::json {
namespace {

/// From this many members on, keys are looked up in a set instead of one after the other.
constexpr std::size_t kFewMembers = 16;

constexpr std::array<bool, 256> MakePlainTable() {
  std::array<bool, 256> plain{};
  for (std::size_t byte = 0x20; byte < 256; ++byte) plain[byte] = byte != '"' && byte != '\\';
  return plain;
}
/// Bytes that stand for themselves inside a string.
constexpr std::array<bool, 256> kPlain = MakePlainTable();

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// What stands at a place, for a message: a printable character in quotes, or the byte's number.
std::string DescribeByte(char c) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (byte > 0x20 && byte < 0x7F) return std::string("'") + c + "'";
  if (byte == ' ') return "a space";
  return std::string("byte 0x") + kHexDigits[byte >> 4] + kHexDigits[byte & 15];
}

/// One pass over one text. Functions return false after the first failure, which `failure` then describes.
class Parser {
 public:
  Parser(std::string_view text, const ParseLimits& limits) : text_(text), limits_(limits) {}

  bool ParseText(Value& value);

  const ParseFailure& failure() const { return failure_; }
  const std::string& message() const { return message_; }

 private:
  bool Fail(ParseFault fault, std::size_t byte, std::string message) {
    failure_ = {fault, byte};
    message_ = std::move(message);
    return false;
  }
  bool FailHere(std::string_view expected) {
    const std::string found = at_ < text_.size() ? DescribeByte(text_[at_]) : "the end of the text";
    return Fail(ParseFault::kSyntax, at_, "expected " + std::string(expected) + ", found " + found);
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Take(char c) {
    if (!At(c)) return false;
    ++at_;
    return true;
  }

  bool ParseValue(Value& value, int depth);
  bool ParseWord(std::string_view word, Value content, Value& value);
  bool ParseArray(Value& value, int depth);
  bool ParseObject(Value& value, int depth);
  bool ParseMember(Object& object, std::set<std::string, std::less<>>& keys, int depth);
  bool IsNewKey(const Object& object, std::set<std::string, std::less<>>& keys, const std::string& key);
  bool ParseString(std::string& out);
  bool ParseEscape(std::string& out);
  bool ParseUnicodeEscape(std::size_t escape_at, std::string& out);
  bool ParseHex4(std::uint32_t& code_unit);
  bool SkipDigits(std::string_view where);
  bool ParseNumber(Value& value);
  bool ConvertDouble(std::size_t from, Value& value);

  std::string_view text_;
  const ParseLimits& limits_;
  std::size_t at_ = 0;
  ParseFailure failure_;
  std::string message_;
};

bool Parser::ParseText(Value& value) {
  if (text_.size() > limits_.max_bytes) {
    return Fail(
        ParseFault::kTooLong, limits_.max_bytes,
        "the text has " + std::to_string(text_.size()) + " bytes, more than " + std::to_string(limits_.max_bytes));
  }
  const std::size_t valid = ValidUtf8Length(text_);
  if (valid != text_.size())
    return Fail(ParseFault::kUtf8, valid, "invalid UTF-8 (" + DescribeByte(text_[valid]) + ")");
  SkipSpace();
  if (!ParseValue(value, 0)) return false;
  SkipSpace();
  if (at_ != text_.size()) return FailHere("nothing after the value");
  return true;
}

bool Parser::ParseValue(Value& value, int depth) {
  if (at_ >= text_.size()) return FailHere("a value");
  switch (text_[at_]) {
    case '{': return ParseObject(value, depth + 1);
    case '[': return ParseArray(value, depth + 1);
    case '"': {
      std::string content;
      if (!ParseString(content)) return false;
      value = Value(std::move(content));
      return true;
    }
    case 't': return ParseWord("true", true, value);
    case 'f': return ParseWord("false", false, value);
    case 'n': return ParseWord("null", nullptr, value);
    default: break;
  }
  if (text_[at_] == '-' || IsDigit(text_[at_])) return ParseNumber(value);
  return FailHere("a value");
}

bool Parser::ParseWord(std::string_view word, Value content, Value& value) {
  if (text_.substr(at_, word.size()) != word) return FailHere("a value");
  at_ += word.size();
  value = std::move(content);
  return true;
}

bool Parser::ParseArray(Value& value, int depth) {
  if (depth > limits_.max_depth) {
    return Fail(ParseFault::kTooDeep, at_, "nested more than " + std::to_string(limits_.max_depth) + " deep");
  }
  ++at_;
  Array array;
  SkipSpace();
  if (!Take(']')) {
    do {
      SkipSpace();
      if (!ParseValue(array.emplace_back(), depth)) return false;
      SkipSpace();
    } while (Take(','));
    if (!Take(']')) return FailHere("',' or ']'");
  }
  value = Value(std::move(array));
  return true;
}

bool Parser::ParseObject(Value& value, int depth) {
  if (depth > limits_.max_depth) {
    return Fail(ParseFault::kTooDeep, at_, "nested more than " + std::to_string(limits_.max_depth) + " deep");
  }
  ++at_;
  Object object;
  SkipSpace();
  if (!Take('}')) {
    std::set<std::string, std::less<>> keys;
    do {
      SkipSpace();
      if (!ParseMember(object, keys, depth)) return false;
      SkipSpace();
    } while (Take(','));
    if (!Take('}')) return FailHere("',' or '}'");
  }
  value = Value(std::move(object));
  return true;
}

bool Parser::ParseMember(Object& object, std::set<std::string, std::less<>>& keys, int depth) {
  const std::size_t key_at = at_;
  if (!At('"')) return FailHere("a key in double quotes");
  std::string key;
  if (!ParseString(key)) return false;
  if (!IsNewKey(object, keys, key)) {
    const bool is_short = key.size() <= 64;
    return Fail(ParseFault::kDuplicateKey, key_at, "duplicate key" + (is_short ? " \"" + key + "\"" : std::string()));
  }
  SkipSpace();
  if (!Take(':')) return FailHere("':'");
  SkipSpace();
  Member& member = object.emplace_back(std::move(key), Value());
  return ParseValue(member.second, depth);
}

bool Parser::IsNewKey(const Object& object, std::set<std::string, std::less<>>& keys, const std::string& key) {
  if (object.size() < kFewMembers) {
    for (const Member& member : object) {
      if (member.first == key) return false;
    }
    return true;
  }
  if (keys.empty()) {
    for (const Member& member : object) keys.insert(member.first);
  }
  return keys.insert(key).second;
}

bool Parser::ParseString(std::string& out) {
  ++at_;
  while (true) {
    const std::size_t plain_from = at_;
    while (at_ < text_.size() && kPlain[static_cast<unsigned char>(text_[at_])]) ++at_;
    out.append(text_, plain_from, at_ - plain_from);
    if (at_ >= text_.size()) return FailHere("'\"' at the end of a string");
    if (Take('"')) return true;
    if (!At('\\')) return FailHere("an escape instead of a control character");
    if (!ParseEscape(out)) return false;
  }
}

bool Parser::ParseEscape(std::string& out) {
  const std::size_t escape_at = at_;
  ++at_;
  if (at_ >= text_.size()) return FailHere("an escaped character");
  switch (text_[at_]) {
    case '"': out += '"'; break;
    case '\\': out += '\\'; break;
    case '/': out += '/'; break;
    case 'b': out += '\b'; break;
    case 'f': out += '\f'; break;
    case 'n': out += '\n'; break;
    case 'r': out += '\r'; break;
    case 't': out += '\t'; break;
    case 'u': ++at_; return ParseUnicodeEscape(escape_at, out);
    default: return FailHere("one of \" \\ / b f n r t u after the backslash");
  }
  ++at_;
  return true;
}

bool Parser::ParseUnicodeEscape(std::size_t escape_at, std::string& out) {
  std::uint32_t code_point = 0;
  if (!ParseHex4(code_point)) return false;
  const auto fail = [&] {
    return Fail(ParseFault::kLoneSurrogate, escape_at,
                "lone surrogate escape " + std::string(text_.substr(escape_at, 6)) + ", which no text can hold");
  };
  if (code_point >= 0xDC00 && code_point <= 0xDFFF) return fail();
  if (code_point >= 0xD800 && code_point <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u") return fail();
    at_ += 2;
    std::uint32_t low = 0;
    if (!ParseHex4(low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return fail();
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(code_point, out);
  return true;
}

bool Parser::ParseHex4(std::uint32_t& code_unit) {
  code_unit = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const int digit = at_ < text_.size() ? HexValue(text_[at_]) : -1;
    if (digit < 0) return FailHere("four hexadecimal digits after \\u");
    code_unit = code_unit * 16 + static_cast<std::uint32_t>(digit);
  }
  return true;
}

bool Parser::SkipDigits(std::string_view where) {
  if (at_ >= text_.size() || !IsDigit(text_[at_])) return FailHere("a digit " + std::string(where));
  while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
  return true;
}

bool Parser::ParseNumber(Value& value) {
  const std::size_t from = at_;
  Take('-');
  if (Take('0')) {
    if (at_ < text_.size() && IsDigit(text_[at_])) return FailHere("no digit after a leading zero");
  } else if (!SkipDigits("in a number")) {
    return false;
  }
  bool is_integer = true;
  if (Take('.')) {
    is_integer = false;
    if (!SkipDigits("after the decimal point")) return false;
  }
  if (At('e') || At('E')) {
    is_integer = false;
    ++at_;
    if (At('+') || At('-')) ++at_;
    if (!SkipDigits("in the exponent")) return false;
  }
  if (!is_integer) return ConvertDouble(from, value);
  std::int64_t integer = 0;
  if (std::from_chars(text_.data() + from, text_.data() + at_, integer).ec == std::errc()) {
    value = Value(integer);
  } else {
    value = Value(BigInteger{std::string(text_.substr(from, at_ - from))});
  }
  return true;
}

/// The decimal exponent of the first digit that is not 0, or nothing useful where all are 0; clamped far beyond
/// doubles.
int DecimalExponent(std::string_view number) {
  constexpr int kFar = 1'000'000'000;
  const std::size_t e = number.find_first_of("eE");
  const std::string_view mantissa = number.substr(0, e);
  int exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view digits = number.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (result.ec != std::errc()) return digits.starts_with('-') ? -kFar : kFar;
    if (exponent > kFar || exponent < -kFar) return exponent > 0 ? kFar : -kFar;
  }
  const std::size_t first = mantissa.find_first_of("123456789");
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  if (first == std::string_view::npos) return -kFar;
  const auto shift = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  return static_cast<int>(exponent + (shift > 0 ? shift - 1 : shift));
}

bool Parser::ConvertDouble(std::size_t from, Value& value) {
  const std::string_view token = text_.substr(from, at_ - from);
  double number = 0;
  const std::from_chars_result result = std::from_chars(token.data(), token.data() + token.size(), number);
  if (result.ec == std::errc::result_out_of_range) {
    // from_chars does not say on which side. Too small is 0, as everywhere; too large would be read back as Infinity.
    if (DecimalExponent(token) > 0) return Fail(ParseFault::kSyntax, from, "the number is too large for a double");
    number = token.starts_with('-') ? -0.0 : 0.0;
  }
  value = Value(number);
  return true;
}

}  // namespace

Result<Value> Parse(std::string_view text, const ParseLimits& limits, ParseFailure* failure) {
  Parser parser(text, limits);
  Value value;
  if (parser.ParseText(value)) return value;
  if (failure != nullptr) *failure = parser.failure();
  return InvalidInput(parser.message() + ", at byte " + std::to_string(parser.failure().byte));
}

}  // namespace draftmill::json
