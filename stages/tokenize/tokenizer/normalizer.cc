#include "stages/tokenize/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "base/text_search.h"
#include "base/utf8.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

/// Per code point: may normalization to this form change it, move it, or join it with what stands before it? Text
/// without such characters is in the form already. Only what the oracle's Unicode version knows counts.
class NormalFormTable {
 public:
  explicit NormalFormTable(NormalForm form) : options_(OptionsOf(form)) {
    const bool composes = (options_ & UTF8PROC_COMPOSE) != 0;
    for (std::uint32_t c = 0x80; c < kCodePointLimit; ++c) {
      if (!UnicodeProperties::Get().NormalizationActive(c)) continue;
      if (Class(c) != 0 || !composes || IsDecomposedForGood(c)) active_.set(c);
    }
    if (composes) MarkSecondsOfCompositions();
    active_ |= seconds_;
    for (std::uint32_t c = 0x80; c < kCodePointLimit; ++c) {
      if (active_[c] && !StartsOnItsOwn(c)) continued_.set(c);
    }
  }

  bool IsActive(std::uint32_t code_point) const { return active_[code_point]; }
  /// True where a character may join, or trade places with, what stands before it.
  bool Continues(std::uint32_t code_point) const { return continued_[code_point]; }

  /// The normal form of a run of characters.
  std::string Normalize(std::string_view run) const {
    std::vector<std::int32_t> characters;
    for (std::size_t at = 0; at < run.size();) {
      unsigned length = 0;
      AppendDecomposed(DecodeUtf8(run, at, length), characters);
      at += length;
    }
    SortMarks(characters);
    auto count = static_cast<utf8proc_ssize_t>(characters.size());
    if ((options_ & UTF8PROC_COMPOSE) != 0) {
      count = utf8proc_normalize_utf32(characters.data(), count, options_);
    }
    std::string normalized;
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      AppendUtf8(static_cast<std::uint32_t>(characters[static_cast<std::size_t>(i)]), normalized);
    }
    return normalized;
  }

  static const NormalFormTable& Of(NormalForm form) {
    static const NormalFormTable* const kNfc = new NormalFormTable(NormalForm::kNfc);
    if (form == NormalForm::kNfc) return *kNfc;
    static const NormalFormTable* const kNfd = new NormalFormTable(NormalForm::kNfd);
    static const NormalFormTable* const kNfkc = new NormalFormTable(NormalForm::kNfkc);
    static const NormalFormTable* const kNfkd = new NormalFormTable(NormalForm::kNfkd);
    return form == NormalForm::kNfd ? *kNfd : form == NormalForm::kNfkc ? *kNfkc : *kNfkd;
  }

 private:
  static utf8proc_option_t OptionsOf(NormalForm form) {
    int options = UTF8PROC_STABLE;
    options |= form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
    return static_cast<utf8proc_option_t>(options);
  }
  static int Class(std::uint32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

  void AppendDecomposed(std::uint32_t c, std::vector<std::int32_t>& out) const { AppendDecomposed(c, options_, out); }

  static void AppendDecomposed(std::uint32_t c, utf8proc_option_t form, std::vector<std::int32_t>& out) {
    if (!UnicodeProperties::Get().NormalizationActive(c)) {
      out.push_back(static_cast<std::int32_t>(c));
      return;
    }
    std::array<utf8proc_int32_t, 32> decomposed{};
    int boundary_class = 0;
    const auto options = static_cast<utf8proc_option_t>((form & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), decomposed.data(),
                                static_cast<utf8proc_ssize_t>(decomposed.size()), options, &boundary_class);
    for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back(decomposed[static_cast<std::size_t>(i)]);
  }

  /// True where the composed form of a character alone is another.
  bool IsDecomposedForGood(std::uint32_t c) const {
    std::vector<std::int32_t> characters;
    AppendDecomposed(c, characters);
    if (characters.size() == 1 && characters[0] == static_cast<std::int32_t>(c)) return false;
    const auto count =
        utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options_);
    return count != 1 || characters[0] != static_cast<std::int32_t>(c);
  }

  /// Only canonical decompositions are put together again.
  void MarkSecondsOfCompositions() {
    const auto canonical = static_cast<utf8proc_option_t>(options_ & ~UTF8PROC_COMPAT);
    for (std::uint32_t c = 0x80; c < kCodePointLimit; ++c) {
      if (!UnicodeProperties::Get().NormalizationActive(c)) continue;
      std::vector<std::int32_t> characters;
      AppendDecomposed(c, canonical, characters);
      for (std::size_t i = 1; i < characters.size(); ++i) seconds_.set(static_cast<std::size_t>(characters[i]));
    }
  }

  bool StartsOnItsOwn(std::uint32_t c) const {
    std::vector<std::int32_t> characters;
    AppendDecomposed(c, characters);
    const auto first = static_cast<std::uint32_t>(characters.front());
    return Class(first) == 0 && !seconds_[first];
  }

  /// Canonical order: runs of marks sorted by combining class, stable.
  static void SortMarks(std::vector<std::int32_t>& characters) {
    const auto class_of = [](std::int32_t c) {
      const auto code_point = static_cast<std::uint32_t>(c);
      return UnicodeProperties::Get().NormalizationActive(code_point) ? Class(code_point) : 0;
    };
    auto at = characters.begin();
    while (at != characters.end()) {
      if (class_of(*at) == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, characters.end(), [&](std::int32_t c) { return class_of(c) == 0; });
      const auto before = [&](std::int32_t a, std::int32_t b) { return class_of(a) < class_of(b); };
      if (!std::is_sorted(at, end, before)) std::stable_sort(at, end, before);
      at = end;
    }
  }

  utf8proc_option_t options_;
  std::bitset<kCodePointLimit> active_;
  std::bitset<kCodePointLimit> seconds_;  // of compositions
  std::bitset<kCodePointLimit> continued_;
};

class NormalFormNormalizer final : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : table_(NormalFormTable::Of(form)) {}

  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    out.Clear();
    bool changed = false;
    std::size_t done = 0;
    std::size_t at = 0;
    while (FindRun(in.text, at, at)) {
      const std::size_t begin = std::max(at == 0 ? 0 : PreviousCharacter(in.text, at), done);
      std::size_t end = at;
      while (end < in.text.size()) {
        unsigned length = 0;
        if (!table_.IsActive(DecodeUtf8(in.text, end, length))) break;
        end += length;
      }
      for (std::size_t from = begin; from < end;) {
        const std::size_t to = EndOfSegment(in.text, from, end);
        const std::string_view segment = in.text.substr(from, to - from);
        const std::string normalized = table_.Normalize(segment);
        if (normalized != segment) {
          changed = true;
          out.AppendSlice(in, done, from);
          out.AppendMade(normalized, in, from, to);
          done = to;
        }
        from = to;
      }
      at = end;
    }
    if (changed) out.AppendSlice(in, done, in.text.size());
    return changed;
  }

 private:
  /// The end of the first part of [from, end) that can be normalized on its own.
  std::size_t EndOfSegment(std::string_view text, std::size_t from, std::size_t end) const {
    unsigned length = 0;
    DecodeUtf8(text, from, length);
    std::size_t to = from + length;
    while (to < end && table_.Continues(DecodeUtf8(text, to, length))) to += length;
    return to;
  }

  /// Where the next active character stands, from `from` on.
  bool FindRun(std::string_view text, std::size_t from, std::size_t& found) const {
    while (from < text.size()) {
      if (static_cast<std::uint8_t>(text[from]) < 0x80) {
        ++from;
        continue;
      }
      unsigned length = 0;
      if (table_.IsActive(DecodeUtf8(text, from, length))) {
        found = from;
        return true;
      }
      from += length;
    }
    return false;
  }

  const NormalFormTable& table_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}

  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    if (in.text.empty() || prefix_.empty()) return false;
    out.Clear();
    out.Reserve(in.text.size() + prefix_.size());
    unsigned length = 0;
    DecodeUtf8(in.text, 0, length);
    out.AppendMade(prefix_, in, 0, length);
    out.AppendSlice(in, 0, in.text.size());
    return true;
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    std::size_t found = FindSubstring(in.text, pattern_);
    if (pattern_.empty() || found == std::string_view::npos) return false;
    out.Clear();
    out.Reserve(in.text.size() + in.text.size() / 4);
    std::size_t done = 0;
    for (; found != std::string_view::npos; found = FindSubstring(in.text, pattern_, done)) {
      out.AppendSlice(in, done, found);
      done = found + pattern_.size();
      out.AppendReplacement(content_, in, found, done);
    }
    out.AppendSlice(in, done, in.text.size());
    return true;
  }

 private:
  std::string pattern_;
  std::string content_;
};

class RegexReplaceNormalizer final : public Normalizer {
 public:
  RegexReplaceNormalizer(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    out.Clear();
    bool changed = false;
    std::size_t done = 0;
    const auto replace = [&](std::uint32_t begin, std::uint32_t end) {
      out.AppendSlice(in, done, begin);
      // Content put where nothing was stands for the character behind it, or for the last one.
      const std::size_t source = begin < in.text.size() ? begin : begin - 1;
      if (begin < end) {
        out.AppendReplacement(content_, in, begin, end);
      } else {
        out.AppendMade(content_, in, source, source + 1);
      }
      done = end;
      changed = true;
    };
    if (in.text.empty()) return false;
    DRAFTMILL_RETURN_IF_ERROR(pattern_.FindAll(in.text, replace));
    if (changed) out.AppendSlice(in, done, in.text.size());
    return changed;
  }

 private:
  Regex pattern_;
  std::string content_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    out.Clear();
    bool changed = false;
    std::string lower;
    for (std::size_t at = 0; at < in.text.size();) {
      unsigned length = 0;
      const std::uint32_t c = DecodeUtf8(in.text, at, length);
      lower.clear();
      // The one character whose full lower case is longer than itself (SpecialCasing.txt).
      if (c == 0x130) {
        lower = "i\xCC\x87";
      } else {
        AppendUtf8(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), lower);
      }
      if (lower == in.text.substr(at, length)) {
        out.AppendSlice(in, at, at + length);
      } else {
        out.AppendMade(lower, in, at, at + length);
        changed = true;
      }
      at += length;
    }
    return changed;
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  Result<bool> Apply(const AlignedText& in, AlignedBuffer& out) const override {
    const UnicodeProperties& unicode = UnicodeProperties::Get();
    std::size_t begin = 0;
    std::size_t end = in.text.size();
    unsigned length = 0;
    while (left_ && begin < end && (unicode.Classes(DecodeUtf8(in.text, begin, length)) & kClassSpace) != 0)
      begin += length;
    while (right_ && end > begin) {
      const std::size_t previous = PreviousCharacter(in.text, end);
      if ((unicode.Classes(DecodeUtf8(in.text, previous, length)) & kClassSpace) == 0) break;
      end = previous;
    }
    if (begin == 0 && end == in.text.size()) return false;
    out.Clear();
    out.AppendSlice(in, begin, end);
    return true;
  }

 private:
  bool left_;
  bool right_;
};

}  // namespace

std::unique_ptr<const Normalizer> MakeNormalFormNormalizer(NormalForm form) {
  return std::make_unique<NormalFormNormalizer>(form);
}
std::unique_ptr<const Normalizer> MakeLowercaseNormalizer() { return std::make_unique<LowercaseNormalizer>(); }
std::unique_ptr<const Normalizer> MakePrependNormalizer(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<const Normalizer> MakeReplaceNormalizer(std::string pattern, std::string content) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
}
std::unique_ptr<const Normalizer> MakeReplaceNormalizer(Regex pattern, std::string content) {
  return std::make_unique<RegexReplaceNormalizer>(std::move(pattern), std::move(content));
}
std::unique_ptr<const Normalizer> MakeStripNormalizer(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}

Result<AlignedText> ApplyAll(const std::vector<std::unique_ptr<const Normalizer>>& normalizers, const AlignedText& in,
                             AlignedBuffer (&buffers)[2]) {
  AlignedText text = in;
  std::size_t next = 0;
  for (const auto& normalizer : normalizers) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool changed, normalizer->Apply(text, buffers[next]));
    if (!changed) continue;
    text = buffers[next].View();
    next = 1 - next;
  }
  return text;
}

}  // namespace draftmill
