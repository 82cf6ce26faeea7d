#include "stages/tokenize/tokenizer/pattern_scanners.h"

#include <algorithm>
#include <iterator>

#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

/// A stretch of text with the tests that all scanners share. Positions are byte offsets; every function takes the start
/// of a character and returns one.
class TextScanner {
 public:
  TextScanner(std::string_view text, std::uint32_t end)
      : bytes_(reinterpret_cast<const std::uint8_t*>(text.data())),
        end_(end),
        ascii_(UnicodeProperties::Get().ascii_classes()),
        unicode_(UnicodeProperties::Get()) {}

  std::uint32_t end() const { return end_; }
  bool AtEnd(std::uint32_t position) const { return position >= end_; }
  std::uint8_t ByteAt(std::uint32_t position) const { return position < end_ ? bytes_[position] : std::uint8_t{0}; }
  bool IsNewline(std::uint32_t position) const { return ByteAt(position) == '\n' || ByteAt(position) == '\r'; }

  /// Classes of the character at `position` (not the end) and where the next one starts.
  std::uint8_t ClassesAt(std::uint32_t position, std::uint32_t& next) const {
    const std::uint8_t byte = bytes_[position];
    if (byte < 0x80) {
      next = position + 1;
      return ascii_[byte];
    }
    unsigned length = 0;
    const std::uint32_t code_point = DecodeUtf8(bytes_ + position, length);
    next = position + length;
    return unicode_.Classes(code_point);
  }
  /// As above, 0 at the end.
  std::uint8_t ClassesOrEnd(std::uint32_t position) const {
    std::uint32_t next = 0;
    return AtEnd(position) ? std::uint8_t{0} : ClassesAt(position, next);
  }

  /// The end of the run of characters that have one of the `classes`.
  std::uint32_t RunOf(std::uint8_t classes, std::uint32_t position) const {
    while (position < end_) {
      const std::uint8_t byte = bytes_[position];
      if (byte < 0x80) {
        if ((ascii_[byte] & classes) == 0) return position;
        ++position;
        continue;
      }
      std::uint32_t next = 0;
      if ((ClassesAt(position, next) & classes) == 0) return position;
      position = next;
    }
    return position;
  }
  /// The end of the run of characters that have one of the `classes` and none of `except`.
  std::uint32_t RunOf(std::uint8_t classes, std::uint8_t except, std::uint32_t position) const {
    std::uint32_t next = 0;
    while (position < end_) {
      const std::uint8_t found = ClassesAt(position, next);
      if ((found & classes) == 0 || (found & except) != 0) return position;
      position = next;
    }
    return position;
  }
  /// The end of the run of characters that have none of the `classes`.
  std::uint32_t RunWithout(std::uint8_t classes, std::uint32_t position) const {
    std::uint32_t next = 0;
    while (position < end_ && (ClassesAt(position, next) & classes) == 0) position = next;
    return position;
  }
  /// The end of the run of carriage returns and line feeds (and slashes).
  std::uint32_t NewlineRun(std::uint32_t position, bool slashes) const {
    while (IsNewline(position) || (slashes && ByteAt(position) == '/')) ++position;
    return position;
  }
  /// Up to `most` characters \p{N} from `position`.
  std::uint32_t NumberRun(std::uint32_t position, int most) const {
    std::uint32_t next = 0;
    for (int i = 0; i < most && position < end_ && (ClassesAt(position, next) & kClassNumber) != 0; ++i)
      position = next;
    return position;
  }

  /// The end of 's|'t|'re|'ve|'m|'ll|'d at `position`, or `position`. Without case, U+017F is an s.
  std::uint32_t Contraction(std::uint32_t position, bool any_case) const {
    if (ByteAt(position) != '\'') return position;
    const std::uint8_t fold = any_case ? 0x20 : 0;
    const auto first = static_cast<std::uint8_t>(ByteAt(position + 1) | fold);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return position + 2;
    const std::uint8_t second = ByteAt(position + 2);
    if (first == 'r' || first == 'v') return (second | fold) == 'e' ? position + 3 : position;
    if (first == 'l') return (second | fold) == 'l' ? position + 3 : position;
    if (any_case && ByteAt(position + 1) == 0xC5 && second == 0xBF) return position + 3;
    return position;
  }

  /// \s+(?!\S)|\s+ at a white space character; with `newlines`, \s*[\r\n]+ is tried before.
  std::uint32_t WhiteSpace(std::uint32_t position, bool newlines) const {
    std::uint32_t after_newline = 0;
    std::uint32_t last = position;
    std::uint32_t at = position;
    std::uint32_t next = 0;
    while (at < end_ && (ClassesAt(at, next) & kClassSpace) != 0) {
      last = at;
      if (IsNewline(at)) after_newline = next;
      at = next;
    }
    if (newlines && after_newline != 0) return after_newline;
    return at == end_ || last == position ? at : last;
  }

 private:
  const std::uint8_t* bytes_;
  std::uint32_t end_;
  const std::uint8_t* ascii_;
  const UnicodeProperties& unicode_;
};

constexpr std::uint8_t kNotOther = kClassSpace | kClassLetter | kClassNumber;

/// kGpt2Pattern.
struct Gpt2Scanner {
  static std::uint32_t Next(const TextScanner& text, std::uint32_t position) {
    const std::uint32_t contraction = text.Contraction(position, false);
    if (contraction != position) return contraction;
    std::uint32_t next = 0;
    std::uint8_t classes = text.ClassesAt(position, next);
    std::uint32_t start = position;
    if (text.ByteAt(position) == ' ' && !text.AtEnd(position + 1)) {
      const std::uint8_t following = text.ClassesAt(position + 1, next);
      if ((following & kClassSpace) == 0) {
        start = position + 1;
        classes = following;
      }
    }
    if ((classes & kClassLetter) != 0) return text.RunOf(kClassLetter, start);
    if ((classes & kClassNumber) != 0) return text.RunOf(kClassNumber, start);
    if ((classes & kClassSpace) == 0) return text.RunWithout(kNotOther, start);
    return text.WhiteSpace(position, false);
  }
};

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// with up to `kDigits` digits; with `kMarks`, \p{M} stands beside each \p{L} but that of the first class.
template <int kDigits, bool kMarks>
struct Cl100kScanner {
  static std::uint32_t Next(const TextScanner& text, std::uint32_t position) {
    constexpr std::uint8_t kWord = kClassLetter | (kMarks ? kClassMark : 0);
    constexpr std::uint8_t kNotPunctuation = kNotOther | kWord;
    std::uint32_t next = 0;
    const std::uint8_t classes = text.ClassesAt(position, next);
    if ((classes & kWord) != 0) return text.RunOf(kWord, next);
    if ((classes & kClassNumber) != 0) return text.NumberRun(next, kDigits - 1);
    const std::uint32_t contraction = text.Contraction(position, true);
    if (contraction != position) return contraction;
    const std::uint8_t following = text.ClassesOrEnd(next);
    if ((following & kWord) != 0 && !text.IsNewline(position)) return text.RunOf(kWord, next);
    if ((classes & kClassSpace) == 0) return text.NewlineRun(text.RunWithout(kNotPunctuation, next), false);
    if (text.ByteAt(position) == ' ' && !text.AtEnd(next) && (following & kNotPunctuation) == 0) {
      return text.NewlineRun(text.RunWithout(kNotPunctuation, next), false);
    }
    return text.WhiteSpace(position, true);
  }
};

/// The o200k pattern: words end where case rises again. Options: how many digits make a piece, contractions at the end
/// of a word, slashes after punctuation, and runs of Han as words of their own (Kimi-K2).
template <int kDigits, bool kContractions, bool kSlashes, bool kHanRuns>
struct O200kScanner {
  static constexpr std::uint8_t kExcept = kHanRuns ? kClassHan : 0;

  /// [upper]*[lower]+ from `start`, or else [upper]+[lower]*; `start` where neither matches. Where the greedy run of
  /// upper characters is not followed by a lower one, the first alternative gives characters back up to the last of the
  /// run that is lower, too (a mark or a letter without case). That answer is `rising`; the second alternative's `any`.
  static void Word(const TextScanner& text, std::uint32_t start, std::uint32_t& rising, std::uint32_t& any) {
    rising = start;
    std::uint32_t at = start;
    std::uint32_t next = 0;
    while (!text.AtEnd(at)) {
      const std::uint8_t classes = text.ClassesAt(at, next);
      if ((classes & kClassUpper) == 0 || (classes & kExcept) != 0) break;
      if ((classes & kClassLower) != 0) rising = next;
      at = next;
    }
    const std::uint32_t lower_end = text.RunOf(kClassLower, kExcept, at);
    if (lower_end != at) rising = lower_end;
    any = std::max(at, rising);
  }

  static std::uint32_t Finish(const TextScanner& text, std::uint32_t position) {
    return kContractions ? text.Contraction(position, true) : position;
  }

  static std::uint32_t Next(const TextScanner& text, std::uint32_t position) {
    std::uint32_t next = 0;
    const std::uint8_t classes = text.ClassesAt(position, next);
    if (kHanRuns && (classes & kClassHan) != 0) return text.RunOf(kClassHan, next);
    if ((classes & kClassNumber) != 0) return text.NumberRun(next, kDigits - 1);
    std::uint32_t rising = 0;
    std::uint32_t any = 0;
    if ((classes & kClassLetter) != 0) {
      Word(text, position, rising, any);
      return Finish(text, rising != position ? rising : any);
    }
    if (!text.IsNewline(position)) {
      Word(text, next, rising, any);
      if (rising != next) return Finish(text, rising);
      if ((classes & kClassMark) != 0) {
        std::uint32_t from_mark = 0;
        std::uint32_t unused = 0;
        Word(text, position, from_mark, unused);
        return Finish(text, from_mark);
      }
      if (any != next) return Finish(text, any);
    }
    if ((classes & kClassSpace) == 0) return text.NewlineRun(text.RunWithout(kNotOther, next), kSlashes);
    if (text.ByteAt(position) == ' ' && !text.AtEnd(next) && (text.ClassesOrEnd(next) & kNotOther) == 0) {
      return text.NewlineRun(text.RunWithout(kNotOther, next), kSlashes);
    }
    return text.WhiteSpace(position, true);
  }
};

/// DeepSeek-V3's third pattern; what it does not match (lone controls, digits) is a piece up to the next match.
struct DeepSeekWordScanner {
  static constexpr std::uint8_t kWord = kClassLetter | kClassMark;

  static bool IsAsciiLetter(std::uint8_t byte) { return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'; }

  /// The end of a match that starts at `position`, or `position`.
  static std::uint32_t Match(const TextScanner& text, std::uint32_t position) {
    std::uint32_t next = 0;
    const std::uint8_t classes = text.ClassesAt(position, next);
    if ((classes & kWord) != 0) return text.RunOf(kWord, next);
    if ((classes & kClassPunctuation) != 0) {
      if (text.ByteAt(position) < 0x80 && IsAsciiLetter(text.ByteAt(next))) {
        while (IsAsciiLetter(text.ByteAt(next))) ++next;
        return next;
      }
      return text.NewlineRun(text.RunOf(kClassPunctuation, next), false);
    }
    const std::uint8_t following = text.ClassesOrEnd(next);
    if ((following & kWord) != 0 && !text.IsNewline(position)) return text.RunOf(kWord, next);
    if (text.ByteAt(position) == ' ' && (following & kClassPunctuation) != 0) {
      return text.NewlineRun(text.RunOf(kClassPunctuation, next), false);
    }
    return (classes & kClassSpace) != 0 ? text.WhiteSpace(position, true) : position;
  }

  static std::uint32_t Next(const TextScanner& text, std::uint32_t position) {
    std::uint32_t at = position;
    do {
      const std::uint32_t end = Match(text, at);
      if (end != at) return at == position ? end : at;
      text.ClassesAt(at, at);
    } while (!text.AtEnd(at));
    return at;
  }
};

/// [\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+, DeepSeek-V3's second pattern, and the text between.
struct DeepSeekCjkScanner {
  static bool IsCjk(const std::uint8_t* bytes) {
    if (bytes[0] < 0xE3 || bytes[0] > 0xE9) return false;
    unsigned length = 0;
    const std::uint32_t c = DecodeUtf8(bytes, length);
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  }
  static std::uint32_t Next(std::string_view text, std::uint32_t position, std::uint32_t end) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    const bool cjk = IsCjk(bytes + position);
    do {
      position += cjk ? 3 : Utf8SequenceLength(bytes[position]);
    } while (position < end && IsCjk(bytes + position) == cjk);
    return position;
  }
};

/// \p{N}{1,n} and the text between.
template <int kDigits>
struct NumberScanner {
  static std::uint32_t Next(const TextScanner& text, std::uint32_t position) {
    const std::uint32_t end = text.NumberRun(position, kDigits);
    return end != position ? end : text.RunWithout(kClassNumber, position);
  }
};

template <typename Scanner>
class ScannerSplitter final : public PieceSplitter {
 public:
  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    const TextScanner scanner(text, within.end);
    std::uint32_t position = within.begin;
    while (position < within.end) {
      const std::uint32_t end = Scanner::Next(scanner, position);
      pieces.push_back({position, end});
      position = end;
    }
    return OkStatus();
  }
};

template <>
class ScannerSplitter<DeepSeekCjkScanner> final : public PieceSplitter {
 public:
  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    std::uint32_t position = within.begin;
    while (position < within.end) {
      const std::uint32_t end = DeepSeekCjkScanner::Next(text, position, within.end);
      pieces.push_back({position, end});
      position = end;
    }
    return OkStatus();
  }
};

template <typename Scanner>
std::unique_ptr<const PieceSplitter> Make() {
  return std::make_unique<ScannerSplitter<Scanner>>();
}

struct KnownPattern {
  std::string_view pattern;
  std::unique_ptr<const PieceSplitter> (*make)();
  bool covers_everything;
};

const KnownPattern kKnownPatterns[] = {
    {kGpt2Pattern, Make<Gpt2Scanner>, true},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Make<Cl100kScanner<3, false>>, true},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Make<Cl100kScanner<1, false>>, true},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Make<Cl100kScanner<1, true>>, true},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Make<O200kScanner<3, true, true, false>>, true},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Make<O200kScanner<1, false, true, false>>, true},
    {kKimiPattern, Make<O200kScanner<3, true, false, true>>, true},
    {R"(\p{N}{1,3})", Make<NumberScanner<3>>, false},
    {R"(\p{N})", Make<NumberScanner<1>>, false},
    {"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", Make<DeepSeekCjkScanner>, false},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     Make<DeepSeekWordScanner>, false},
};

}  // namespace

std::vector<std::string_view> KnownScannerPatterns() {
  std::vector<std::string_view> patterns;
  for (const KnownPattern& known : kKnownPatterns) patterns.push_back(known.pattern);
  return patterns;
}

PatternScanner FindPatternScanner(std::string_view pattern) {
  for (const KnownPattern& known : kKnownPatterns) {
    if (known.pattern == pattern) return {known.make(), known.covers_everything};
  }
  return {};
}

}  // namespace draftmill
