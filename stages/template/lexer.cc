#include "stages/template/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "stages/template/unicode_text.h"

namespace draftmill::jinja {
namespace {

/// Where a tag begins in the template's text.
enum class TagKind : std::uint8_t { kBlock, kVariable, kComment };

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int CountNewlines(std::string_view text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

/// CR LF and CR become LF, and one newline at the end is dropped, as jinja2 does before it looks at anything.
std::string NormalizeNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text.push_back('\n');
    } else {
      text.push_back(source[i]);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::size_t SkipSpace(std::string_view text, std::size_t at) { return at + LeadingSpaceBytes(text.substr(at)); }

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Result<std::vector<Token>> Run() {
    while (position_ < text_.size()) {
      DRAFTMILL_RETURN_IF_ERROR(ReadDataAndTag());
      DRAFTMILL_RETURN_IF_ERROR(CheckCount());
    }
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status Fail(const std::string& message) const {
    return InvalidInput("template line " + std::to_string(line_) + ": " + message);
  }

  /// A token takes hundreds of bytes by the time it is parsed.
  Status CheckCount() const {
    if (tokens_.size() <= kMaximumTokens) return OkStatus();
    return Fail("the template has more than " + std::to_string(kMaximumTokens) + " tokens");
  }

  void Add(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text)}); }

  /// The next "{%", "{{" or "{#" from `from` on.
  std::size_t FindTag(std::size_t from) const {
    for (std::size_t at = text_.find('{', from); at != std::string::npos; at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() && (text_[at + 1] == '%' || text_[at + 1] == '{' || text_[at + 1] == '#')) return at;
    }
    return std::string::npos;
  }

  /// Consumes `to` - position_ bytes and keeps the line number and "at the start of a line" right.
  void Advance(std::size_t to) {
    line_ += CountNewlines(std::string_view(text_).substr(position_, to - position_));
    if (to > position_) line_starting_ = text_[to - 1] == '\n';
    position_ = to;
  }

  /// Data up to a tag: `sign` is the tag's own '-', '+' or 0.
  void AddData(std::size_t end, char sign, bool is_variable) {
    std::string_view data = std::string_view(text_).substr(position_, end - position_);
    if (sign == '-') {
      data.remove_suffix(TrailingSpaceBytes(data));
    } else if (sign != '+' && !is_variable) {
      const std::size_t line_begin = data.rfind('\n') + 1;  // npos + 1 is 0
      if ((line_begin > 0 || line_starting_) &&
          LeadingSpaceBytes(data.substr(line_begin)) == data.size() - line_begin) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenType::kData, std::string(data));
  }

  Status ReadDataAndTag() {
    const std::size_t tag = FindTag(position_);
    if (tag == std::string::npos) {
      Add(TokenType::kData, text_.substr(position_));
      Advance(text_.size());
      return OkStatus();
    }
    const char second = text_[tag + 1];
    const char sign =
        tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : '\0';
    const std::size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    AddData(tag, sign, second == '{');
    if (second == '%') {
      if (const auto raw_end = MatchRawBegin(inside)) {
        Advance(*raw_end);
        return ReadRaw();
      }
    }
    Advance(inside);
    if (second == '#') return ReadComment();
    Add(second == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    return ReadExpressionTokens(second == '%');
  }

  /// The end of "raw %}" if that is what stands at `at`.
  std::optional<std::size_t> MatchRawBegin(std::size_t at) const {
    at = SkipSpace(text_, at);
    if (text_.compare(at, 3, "raw") != 0) return std::nullopt;
    at = SkipSpace(text_, at + 3);
    if (text_.compare(at, 3, "-%}") == 0) return SkipSpace(text_, at + 3);
    if (text_.compare(at, 2, "%}") == 0) return at + 2;
    return std::nullopt;
  }

  /// The byte after a tag's end "%}", "-%}" (and white space) or "+%}", with the newline that trim_blocks drops.
  std::optional<std::size_t> MatchTagEnd(std::size_t at, std::string_view end) const {
    if (text_.compare(at, 1, "-") == 0 && text_.compare(at + 1, end.size(), end) == 0) {
      return SkipSpace(text_, at + 1 + end.size());
    }
    if (text_.compare(at, 1, "+") == 0 && text_.compare(at + 1, end.size(), end) == 0) return at + 1 + end.size();
    if (text_.compare(at, end.size(), end) != 0) return std::nullopt;
    at += end.size();
    return at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  Status ReadRaw() {
    for (std::size_t at = text_.find("{%", position_); at != std::string::npos; at = text_.find("{%", at + 1)) {
      const char sign = at + 2 < text_.size() && (text_[at + 2] == '-' || text_[at + 2] == '+') ? text_[at + 2] : '\0';
      const std::size_t name = SkipSpace(text_, at + 2 + (sign != '\0' ? 1 : 0));
      if (text_.compare(name, 6, "endraw") != 0) continue;
      const auto end = MatchTagEnd(SkipSpace(text_, name + 6), "%}");
      if (!end) continue;
      AddData(at, sign, false);
      Advance(*end);
      return OkStatus();
    }
    return Fail("Missing end of raw directive");
  }

  Status ReadComment() {
    // The first place where "#}", "-#}" or "+#}" matches.
    const std::size_t hash = text_.find("#}", position_);
    if (hash == std::string::npos) return Fail("Missing end of comment tag");
    std::size_t begin = hash;
    if (hash > position_ && (text_[hash - 1] == '-' || text_[hash - 1] == '+')) begin = hash - 1;
    Advance(*MatchTagEnd(begin, "#}"));
    return OkStatus();
  }

  Status ReadExpressionTokens(bool is_block) {
    std::string closers;  // of the brackets that are open
    while (position_ < text_.size()) {
      if (closers.empty()) {
        if (is_block) {
          if (const auto end = MatchTagEnd(position_, "%}")) return CloseTag(TokenType::kBlockEnd, *end);
        } else if (text_.compare(position_, 2, "}}") == 0) {
          return CloseTag(TokenType::kVariableEnd, position_ + 2);
        } else if (text_.compare(position_, 3, "-}}") == 0) {
          return CloseTag(TokenType::kVariableEnd, SkipSpace(text_, position_ + 3));
        }
      }
      const std::size_t after_space = SkipSpace(text_, position_);
      if (after_space != position_) {
        Advance(after_space);
        continue;
      }
      DRAFTMILL_RETURN_IF_ERROR(ReadToken(closers));
      DRAFTMILL_RETURN_IF_ERROR(CheckCount());
    }
    return Fail(is_block ? "the template ends inside {% ... %}" : "the template ends inside {{ ... }}");
  }

  Status CloseTag(TokenType type, std::size_t end) {
    Add(type, "");
    Advance(end);
    return OkStatus();
  }

  Status ReadToken(std::string& closers) {
    const char c = text_[position_];
    if (IsDigit(c)) return ReadNumber();
    if (IsNameByte(c)) return ReadName();
    if (c == '\'' || c == '"') return ReadString(c);
    return ReadOperator(closers);
  }

  Status ReadName() {
    std::size_t end = position_;
    while (end < text_.size() && IsNameByte(text_[end])) ++end;
    Add(TokenType::kName, text_.substr(position_, end - position_));
    Advance(end);
    return OkStatus();
  }

  /// Digits with single underscores between them, from `at` on.
  std::size_t SkipDigits(std::size_t at) const {
    while (at < text_.size() &&
           (IsDigit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && IsDigit(text_[at + 1])))) {
      ++at;
    }
    return at;
  }

  Status ReadNumber() {
    const char second = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
    if (text_[position_] == '0' &&
        (second == 'x' || second == 'X' || second == 'o' || second == 'O' || second == 'b' || second == 'B')) {
      return Fail("numbers in base 2, 8 and 16 are not supported");
    }
    std::size_t end = SkipDigits(position_);
    bool is_float = false;
    const bool after_dot = position_ > 0 && text_[position_ - 1] == '.';
    if (!after_dot && end + 1 < text_.size() && text_[end] == '.' && IsDigit(text_[end + 1])) {
      is_float = true;
      end = SkipDigits(end + 1);
    }
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const std::size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < text_.size() && IsDigit(text_[end + 1 + sign])) {
        is_float = true;
        end = SkipDigits(end + 1 + sign);
      }
    }
    std::string digits = text_.substr(position_, end - position_);
    std::erase(digits, '_');
    if (!is_float && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      return Fail("a number must not begin with 0");
    }
    Add(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(digits));
    Advance(end);
    return OkStatus();
  }

  Status ReadString(char quote) {
    std::size_t end = position_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail("a string is not closed");
    std::string value;
    DRAFTMILL_RETURN_IF_ERROR(Unescape(std::string_view(text_).substr(position_ + 1, end - position_ - 1), value));
    Add(TokenType::kString, std::move(value));
    Advance(end + 1);
    return OkStatus();
  }

  /// Python's "unicode-escape": unknown escapes stay as they are.
  Status Unescape(std::string_view raw, std::string& out) const {
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out.push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kNames = "\\'\"abfnrtv";
      static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
        out.push_back(kValues[known]);
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
        DRAFTMILL_RETURN_IF_ERROR(UnescapeHex(raw.substr(i + 1, digits), digits, out));
        i += digits;
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        std::size_t used = 0;
        while (used < 3 && i + used < raw.size() && raw[i + used] >= '0' && raw[i + used] <= '7') {
          code = code * 8 + static_cast<char32_t>(raw[i + used++] - '0');
        }
        AppendUtf8(code, out);
        i += used - 1;
      } else if (c == 'N') {
        return Fail("\\N{...} in a string is not supported");
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return OkStatus();
  }

  Status UnescapeHex(std::string_view digits, std::size_t count, std::string& out) const {
    if (digits.size() != count || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return Fail("a truncated \\x, \\u or \\U escape in a string");
    }
    const char32_t code = static_cast<char32_t>(std::stoul(std::string(digits), nullptr, 16));
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return Fail("an escape in a string is no character");
    AppendUtf8(code, out);
    return OkStatus();
  }

  Status ReadOperator(std::string& closers) {
    static constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ","};
    for (const std::string_view candidate : kOperators) {
      if (text_.compare(position_, candidate.size(), candidate) != 0) continue;
      const char c = candidate[0];
      if (c == '(') closers.push_back(')');
      if (c == '[') closers.push_back(']');
      if (c == '{') closers.push_back('}');
      if (c == ')' || c == ']' || c == '}') {
        if (closers.empty()) return Fail("unexpected '" + std::string(candidate) + "'");
        if (closers.back() != c) {
          return Fail("unexpected '" + std::string(candidate) + "', expected '" + closers.back() + "'");
        }
        closers.pop_back();
      }
      Add(TokenType::kOperator, std::string(candidate));
      Advance(position_ + candidate.size());
      return OkStatus();
    }
    const DecodedCharacter character = DecodeAt(text_, position_);
    return Fail("unexpected character '" + text_.substr(position_, character.bytes) + "'");
  }

  std::string text_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaximumTemplateBytes) {
    return InvalidInput("template line 1: the template has " + std::to_string(source.size()) + " bytes; at most " +
                        std::to_string(kMaximumTemplateBytes) + " are read");
  }
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace draftmill::jinja
