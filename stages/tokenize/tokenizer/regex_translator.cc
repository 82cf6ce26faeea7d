#include "stages/tokenize/tokenizer/regex_translator.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "stages/tokenize/tokenizer/regex_classes.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

constexpr int kMaxNesting = 50;
constexpr int kMaxRepeat = 1000;
constexpr std::string_view kAnyCharacter = R"([\x{0}-\x{10ffff}])";

std::string CharacterText(std::uint32_t c) {
  char text[16];
  const int length = std::snprintf(text, sizeof(text), "\\x{%x}", c);
  return std::string(text, static_cast<std::size_t>(length));
}

/// A set of characters as patterns that match one of them.
struct CharacterSet {
  std::string members;                // what stands between [ and ]
  std::vector<std::string> patterns;  // further members, each a pattern of one character

  std::string Text(bool negated) const {
    if (patterns.empty()) return (negated ? "[^" : "[") + members + "]";
    std::string any = members.empty() ? "" : "[" + members + "]";
    for (const std::string& pattern : patterns) any += (any.empty() ? "" : "|") + pattern;
    return negated ? "(?:(?!" + any + ")" + std::string(kAnyCharacter) + ")" : "(?:" + any + ")";
  }
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    DRAFTMILL_RETURN_IF_ERROR(Alternatives(0));
    if (!AtEnd()) return Refuse("an unmatched )");
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool Take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  std::uint32_t TakeCharacter() {
    unsigned length = 0;
    const std::uint32_t c = DecodeUtf8(pattern_, at_, length);
    at_ += length;
    return c;
  }
  Status Refuse(std::string_view what) const {
    return Unsupported(std::string(what) + " at byte " + std::to_string(at_) + " of the pattern");
  }

  Status Alternatives(int depth) {
    if (depth > kMaxNesting) return Refuse("groups nested this deep");
    previous_literal_ = 0;
    while (!AtEnd() && Peek() != ')') {
      if (Take("|")) {
        out_ += '|';
        previous_literal_ = 0;
        continue;
      }
      const std::size_t atom_begin = out_.size();
      DRAFTMILL_RETURN_IF_ERROR(Atom(depth));
      DRAFTMILL_RETURN_IF_ERROR(Quantifier(atom_begin));
    }
    return OkStatus();
  }

  Status Atom(int depth) {
    if (Peek() == '(') return Group(depth);
    if (Peek() == '[') {
      previous_literal_ = 0;
      ++at_;
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, Class(depth));
      out_ += text;
      return OkStatus();
    }
    if (Peek() == '\\') return Escape();
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') return Refuse("a quantifier with nothing to repeat");
    if (Take(".")) return Emit(".");
    if (Take("^")) return Emit("(?m:^)");
    if (Take("$")) return Emit("(?m:$)");
    return Literal(TakeCharacter());
  }

  Status Emit(std::string_view text) {
    out_ += text;
    previous_literal_ = 0;
    return OkStatus();
  }

  Status Literal(std::uint32_t c) {
    if (ignore_case_) {
      if (c >= 0x80) return Refuse("a character outside ASCII inside (?i:)");
      const auto lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      const std::string pair{previous_literal_, lower};
      for (const char* const folded : {"ss", "ff", "fi", "fl", "st"}) {
        if (pair == folded) return Refuse("letters inside (?i:) that one character may fold to");
      }
      previous_literal_ = lower;
    }
    out_ += CharacterText(c);
    return OkStatus();
  }

  Status Group(int depth) {
    static constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const bool outer_ignore_case = ignore_case_;
    bool known = false;
    if (Take("(?i:")) {
      ignore_case_ = true;
      out_ += "(?i:";
      known = true;
    }
    for (const std::string_view opening : kOpenings) {
      if (known || !Take(opening)) continue;
      out_ += opening;
      known = true;
    }
    if (!known && Peek(1) == '?') return Refuse("a group of this kind");
    if (!known) {
      ++at_;
      out_ += "(?:";
    }
    DRAFTMILL_RETURN_IF_ERROR(Alternatives(depth + 1));
    if (!Take(")")) return Refuse("a missing )");
    out_ += ')';
    ignore_case_ = outer_ignore_case;
    previous_literal_ = 0;
    return OkStatus();
  }

  /// An escape that stands for one character, if it does.
  Result<std::optional<std::uint32_t>> CharacterEscape() {
    static constexpr std::pair<char, std::uint32_t> kControls[] = {{'n', 0x0A}, {'r', 0x0D}, {'t', 0x09}, {'f', 0x0C},
                                                                   {'v', 0x0B}, {'a', 0x07}, {'e', 0x1B}};
    const char name = Peek(1);
    for (const auto& [letter, code] : kControls) {
      if (name != letter) continue;
      at_ += 2;
      return std::optional<std::uint32_t>(code);
    }
    if (name == 'x' || name == 'u') return HexEscape();
    const bool alphanumeric = (name >= '0' && name <= '9') || ((name | 0x20) >= 'a' && (name | 0x20) <= 'z');
    if (alphanumeric || name == '\0' || static_cast<std::uint8_t>(name) >= 0x80) return std::optional<std::uint32_t>();
    at_ += 2;
    return std::optional<std::uint32_t>(static_cast<std::uint8_t>(name));
  }

  /// \xHH (below 80), \x{H...}, \uHHHH.
  Result<std::optional<std::uint32_t>> HexEscape() {
    const bool braces = Peek(1) == 'x' && Peek(2) == '{';
    const std::size_t begin = at_ + (braces ? 3 : 2);
    const std::size_t close = braces ? pattern_.find('}', begin) : begin + (Peek(1) == 'x' ? 2 : 4);
    if (close == std::string_view::npos || close > pattern_.size() || close == begin || close - begin > 8) {
      return Refuse("an incomplete hexadecimal escape");
    }
    std::uint32_t code = 0;
    const char* const end = pattern_.data() + close;
    const auto [rest, error] = std::from_chars(pattern_.data() + begin, end, code, 16);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (error != std::errc() || rest != end || code >= kCodePointLimit || surrogate) {
      return Refuse("a hexadecimal escape that is no character");
    }
    if (Peek(1) == 'x' && !braces && code >= 0x80) return Refuse("a byte escape outside ASCII");
    at_ = close + (braces ? 1 : 0);
    return std::optional<std::uint32_t>(code);
  }

  /// \s \w \d \p{..} and their opposites: adds them to `set`; returns false where the escape is something else.
  Result<bool> ClassEscape(CharacterSet& set, bool in_brackets) {
    const char letter = Peek(1);
    std::string_view name;
    bool negated = false;
    std::size_t next = at_ + 2;
    if (letter == 's' || letter == 'S') {
      name = "space";
    } else if (letter == 'w' || letter == 'W') {
      name = in_brackets ? "word in brackets" : "word";
    } else if (letter == 'd' || letter == 'D') {
      name = "digit";
    } else if ((letter == 'p' || letter == 'P') && Peek(2) == '{') {
      const std::size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) return Refuse("a property without }");
      name = pattern_.substr(at_ + 3, close - at_ - 3);
      next = close + 1;
      if (!name.empty() && name[0] == '^') {
        negated = true;
        name.remove_prefix(1);
      }
      if (name == "space" || name.starts_with("word") || name == "digit") name = "";
    } else {
      return false;
    }
    if (ignore_case_) return Refuse("a class inside (?i:)");
    const std::optional<std::string> members = ClassText(name);
    if (!members) return Refuse("an unknown property");
    at_ = next;
    if (letter < 'a') negated = !negated;
    if (negated) {
      set.patterns.push_back("[^" + *members + "]");
    } else {
      set.members += *members;
    }
    return true;
  }

  Status Escape() {
    CharacterSet set;
    DRAFTMILL_ASSIGN_OR_RETURN(const bool is_class, ClassEscape(set, false));
    if (is_class) return Emit(set.patterns.empty() ? set.Text(false) : set.patterns[0]);
    if (Peek(1) == 'A' || Peek(1) == 'z' || Peek(1) == 'Z') {
      out_ += pattern_.substr(at_, 2);
      at_ += 2;
      previous_literal_ = 0;
      return OkStatus();
    }
    if (Peek(1) == 'b' || Peek(1) == 'B') return WordBorder();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> c, CharacterEscape());
    return c ? Literal(*c) : Refuse("an escape that is not known to mean the same in both engines");
  }

  Status WordBorder() {
    const std::string word = "[" + ClassText("word").value_or("") + "]";
    const bool border = Peek(1) == 'b';
    at_ += 2;
    const std::string before = "(?<=" + word + ")";
    const std::string not_before = "(?<!" + word + ")";
    const std::string behind = "(?=" + word + ")";
    const std::string not_behind = "(?!" + word + ")";
    return Emit(border ? "(?:" + before + not_behind + "|" + not_before + behind + ")"
                       : "(?:" + before + behind + "|" + not_before + not_behind + ")");
  }

  /// What follows [ up to its ]; a pattern of one character.
  Result<std::string> Class(int depth) {
    if (depth > kMaxNesting) return Refuse("classes nested this deep");
    const bool negated = Take("^");
    if (ignore_case_ && negated) return Refuse("a negated class inside (?i:)");
    std::vector<CharacterSet> operands(1);
    bool first = true;
    while (!Take("]")) {
      if (AtEnd()) return Refuse("a class without ]");
      if (Take("&&")) {
        if (ignore_case_) return Refuse("&& inside (?i:)");
        if (IsEmpty(operands.back())) return Refuse("an empty side of &&");
        operands.emplace_back();
        continue;
      }
      DRAFTMILL_RETURN_IF_ERROR(ClassItem(depth, first, operands.back()));
      first = false;
    }
    if (IsEmpty(operands.back())) return Refuse("an empty class");
    if (operands.size() == 1) return operands[0].Text(negated);
    std::string all;
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + operands[i].Text(false) + ")";
    all += operands.back().Text(false);
    return negated ? "(?:(?!" + all + ")" + std::string(kAnyCharacter) + ")" : "(?:" + all + ")";
  }

  static bool IsEmpty(const CharacterSet& set) { return set.members.empty() && set.patterns.empty(); }

  Status ClassItem(int depth, bool first, CharacterSet& set) {
    if (Peek() == '[') {
      if (Peek(1) == ':') return Refuse("a POSIX class");
      if (ignore_case_) return Refuse("a class in a class inside (?i:)");
      ++at_;
      DRAFTMILL_ASSIGN_OR_RETURN(std::string nested, Class(depth + 1));
      set.patterns.push_back(std::move(nested));
      return OkStatus();
    }
    if (Peek() == '\\') {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool is_class, ClassEscape(set, true));
      if (is_class) return Peek() == '-' && Peek(1) != ']' ? Refuse("a range that starts with a class") : OkStatus();
    }
    DRAFTMILL_ASSIGN_OR_RETURN(const std::uint32_t low, ClassCharacter());
    const bool literal_dash = low == '-' && pattern_[at_ - 1] == '-' && pattern_.substr(at_ - 2, 1) != "\\";
    if (literal_dash && !first && Peek() != ']') return Refuse("a dash between members");
    if (ignore_case_ && low >= 0x80) return Refuse("a character outside ASCII inside (?i:)");
    set.members += CharacterText(low);
    if (Peek() != '-' || Peek(1) == ']' || Peek(1) == '\0') return OkStatus();
    ++at_;
    if (Peek() == '[' || Peek() == '&') return Refuse("a range that ends with a class");
    DRAFTMILL_ASSIGN_OR_RETURN(const std::uint32_t high, ClassCharacter());
    if (high < low) return Refuse("a range that runs backwards");
    if (ignore_case_ && high >= 0x80) return Refuse("a character outside ASCII inside (?i:)");
    set.members += "-" + CharacterText(high);
    return OkStatus();
  }

  Result<std::uint32_t> ClassCharacter() {
    if (AtEnd()) return Refuse("a class without ]");
    if (Peek() != '\\') return TakeCharacter();
    DRAFTMILL_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> c, CharacterEscape());
    if (!c) return Refuse("an escape that is not known to mean the same in both engines");
    return *c;
  }

  /// {n}, {n,}, {,n} or {n,m} at the current place; moves behind it.
  bool TakeInterval(std::string& interval, bool& exact) {
    const std::size_t close = pattern_.find('}', at_);
    if (Peek() != '{' || close == std::string_view::npos) return false;
    const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
    if (inside.find_first_not_of("0123456789,") != std::string_view::npos) return false;
    const std::size_t comma = inside.find(',');
    exact = comma == std::string_view::npos;
    if (!exact && (inside.find(',', comma + 1) != std::string_view::npos || inside.size() == 1)) return false;
    if (inside.empty()) return false;
    interval = "{" + std::string(!exact && comma == 0 ? "0" : "") + std::string(inside) + "}";
    at_ = close + 1;
    return true;
  }

  static bool IsSmall(std::string_view interval) {
    int number = 0;
    for (const char character : interval) {
      number = character >= '0' && character <= '9' ? number * 10 + (character - '0') : 0;
      if (number > kMaxRepeat) return false;
    }
    return true;
  }

  Status Quantifier(std::size_t atom_begin) {
    std::string interval;
    bool exact = false;
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') {
      out_ += Peek();
      ++at_;
      if (Peek() == '?' || Peek() == '+') {
        out_ += Peek();
        ++at_;
      }
    } else if (TakeInterval(interval, exact)) {
      if (!IsSmall(interval)) return Refuse("a repetition above 1000");
      out_ += interval;
      if (Take("+")) {
        out_.insert(atom_begin, "(?:");
        out_ += ")+";
      } else if (Take("?")) {
        if (exact) out_.insert(atom_begin, "(?:");
        out_ += exact ? ")?" : "?";
      }
    } else {
      return OkStatus();
    }
    previous_literal_ = 0;
    const bool another = Peek() == '*' || Peek() == '+' || Peek() == '?' || TakeInterval(interval, exact);
    return another ? Refuse("a quantifier on a quantifier") : OkStatus();
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  bool ignore_case_ = false;
  char previous_literal_ = 0;  // inside (?i:), in lower case
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern) {
  if (!IsValidUtf8(pattern)) return InvalidInput("the pattern is not valid UTF-8");
  return Translator(pattern).Run();
}

}  // namespace draftmill
