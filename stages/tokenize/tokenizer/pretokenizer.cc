#include "stages/tokenize/tokenizer/pretokenizer.h"

#include "base/text_search.h"
#include "stages/tokenize/tokenizer/byte_alphabet.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

void AppendPiece(Piece piece, std::vector<Piece>& pieces) {
  if (piece.begin < piece.end) pieces.push_back(piece);
}

/// Joins neighbours: `joins(previous_is_match, is_match)` says whether a part continues the piece before it.
template <typename Joins>
void JoinForwards(const std::vector<SplitPart>& parts, Joins joins, std::vector<Piece>& pieces) {
  Piece open;
  bool previous_is_match = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && joins(previous_is_match, parts[i].is_match)) {
      open.end = parts[i].range.end;
    } else {
      AppendPiece(open, pieces);
      open = parts[i].range;
    }
    previous_is_match = parts[i].is_match;
  }
  AppendPiece(open, pieces);
}

/// A match joins what follows, if that is no match.
void JoinWithNext(const std::vector<SplitPart>& parts, std::vector<Piece>& pieces) {
  JoinForwards(
      parts, [](bool previous_is_match, bool is_match) { return previous_is_match && !is_match; }, pieces);
}

class LiteralSplitter final : public PieceSplitter {
 public:
  LiteralSplitter(std::string literal, SplitBehavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    MatchedStretch stretch(within, invert_);
    const std::string_view view = text.substr(0, within.end);
    for (std::size_t found = FindSubstring(view, literal_, within.begin); found != std::string_view::npos;
         found = FindSubstring(view, literal_, found + literal_.size())) {
      stretch.AddMatch(static_cast<std::uint32_t>(found), static_cast<std::uint32_t>(found + literal_.size()));
    }
    stretch.Split(behavior_, pieces);
    return OkStatus();
  }

 private:
  std::string literal_;
  SplitBehavior behavior_;
  bool invert_;
};

bool IsNumeric(std::uint32_t c) { return (UnicodeProperties::Get().Classes(c) & kClassNumber) != 0; }

bool IsPunctuation(std::uint32_t c) {
  const GeneralCategory category = UnicodeProperties::Get().Category(c);
  if (category >= GeneralCategory::kPc && category <= GeneralCategory::kPo) return true;
  return c < 128 && (UnicodeProperties::Get().Classes(c) & kClassPunctuation) != 0;
}

bool IsSpace(std::uint32_t c) { return (UnicodeProperties::Get().Classes(c) & kClassSpace) != 0; }

/// Splits at single characters of a kind.
class CharacterSplitter final : public PieceSplitter {
 public:
  CharacterSplitter(bool (*is_match)(std::uint32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    std::vector<SplitPart> parts;
    for (std::uint32_t at = within.begin; at < within.end;) {
      unsigned length = 0;
      const bool is_match = is_match_(DecodeUtf8(text, at, length));
      if (!is_match && !parts.empty() && !parts.back().is_match) {
        parts.back().range.end = at + length;
      } else {
        parts.push_back({{at, at + length}, is_match});
      }
      at += length;
    }
    ApplySplitBehavior(parts, behavior_, pieces);
    return OkStatus();
  }

 private:
  bool (*is_match_)(std::uint32_t);
  SplitBehavior behavior_;
};

/// \w+|[^\w\s]+ with all else removed.
class WhitespaceSplitter final : public PieceSplitter {
 public:
  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    const UnicodeProperties& unicode = UnicodeProperties::Get();
    enum Kind : std::uint8_t { kSpace, kWord, kOther };
    Kind open_kind = kSpace;
    Piece open{within.begin, within.begin};
    for (std::uint32_t at = within.begin; at < within.end;) {
      unsigned length = 0;
      const std::uint32_t c = DecodeUtf8(text, at, length);
      const Kind kind = unicode.IsRustWord(c) ? kWord : IsSpace(c) ? kSpace : kOther;
      if (kind != open_kind) {
        if (open_kind != kSpace) AppendPiece(open, pieces);
        open = {at, at};
        open_kind = kind;
      }
      at += length;
      open.end = at;
    }
    if (open_kind != kSpace) AppendPiece(open, pieces);
    return OkStatus();
  }
};

class StandInSplitter final : public PieceSplitter {
 public:
  explicit StandInSplitter(std::unique_ptr<const PieceSplitter> inner) : inner_(std::move(inner)) {}

  Status Split(std::string_view text, Piece within, std::vector<Piece>& pieces) const override {
    const std::string stand_ins = ByteLevelOfBytes(text.substr(within.begin, within.end - within.begin));
    std::vector<Piece> found;
    DRAFTMILL_RETURN_IF_ERROR(inner_->Split(stand_ins, {0, static_cast<std::uint32_t>(stand_ins.size())}, found));
    // A byte is one character here: the pieces in order are counted back into bytes.
    std::uint32_t at = 0;
    std::uint32_t byte = within.begin;
    const auto byte_at = [&](std::uint32_t end) {
      for (; at < end; ++at) byte += IsContinuationByte(stand_ins[at]) ? 0U : 1U;
      return byte;
    };
    for (const Piece& piece : found) {
      const std::uint32_t begin = byte_at(piece.begin);
      pieces.push_back({begin, byte_at(piece.end)});
    }
    return OkStatus();
  }

 private:
  static bool IsContinuationByte(char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0U) == 0x80; }

  std::unique_ptr<const PieceSplitter> inner_;
};

}  // namespace

void MatchedStretch::AddMatch(std::uint32_t begin, std::uint32_t end) {
  if (done_ < begin) parts_.push_back({{done_, begin}, invert_});
  parts_.push_back({{begin, end}, !invert_});
  done_ = end;
}

void MatchedStretch::Split(SplitBehavior behavior, std::vector<Piece>& pieces) {
  if (done_ < end_) parts_.push_back({{done_, end_}, invert_});
  ApplySplitBehavior(parts_, behavior, pieces);
}

void ApplySplitBehavior(const std::vector<SplitPart>& parts, SplitBehavior behavior, std::vector<Piece>& pieces) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const SplitPart& part : parts) {
        if (!part.is_match) AppendPiece(part.range, pieces);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const SplitPart& part : parts) AppendPiece(part.range, pieces);
      return;
    case SplitBehavior::kContiguous:
      return JoinForwards(
          parts, [](bool previous, bool current) { return previous == current; }, pieces);
    case SplitBehavior::kMergedWithPrevious:
      return JoinForwards(
          parts, [](bool previous, bool current) { return current && !previous; }, pieces);
    case SplitBehavior::kMergedWithNext: return JoinWithNext(parts, pieces);
  }
}

std::unique_ptr<const PieceSplitter> MakeLiteralSplitter(std::string literal, SplitBehavior behavior, bool invert) {
  return std::make_unique<LiteralSplitter>(std::move(literal), behavior, invert);
}
std::unique_ptr<const PieceSplitter> MakeDigitsSplitter(bool individual_digits) {
  return std::make_unique<CharacterSplitter>(IsNumeric,
                                             individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}
std::unique_ptr<const PieceSplitter> MakePunctuationSplitter(SplitBehavior behavior) {
  return std::make_unique<CharacterSplitter>(IsPunctuation, behavior);
}
std::unique_ptr<const PieceSplitter> MakeWhitespaceSplitter() { return std::make_unique<WhitespaceSplitter>(); }
std::unique_ptr<const PieceSplitter> MakeWhitespaceOnlySplitter() {
  return std::make_unique<CharacterSplitter>(IsSpace, SplitBehavior::kRemoved);
}

std::unique_ptr<const PieceSplitter> MakeStandInSplitter(std::unique_ptr<const PieceSplitter> inner) {
  return std::make_unique<StandInSplitter>(std::move(inner));
}

void PreTokenizer::AddSplitter(std::unique_ptr<const PieceSplitter> splitter) {
  steps_.emplace_back().splitter = std::move(splitter);
}

void PreTokenizer::AddPrefixSpace() {
  Step& step = steps_.emplace_back();
  step.prefix = " ";
  step.scheme = PrependScheme::kAlways;
}

void PreTokenizer::AddMetaspace(std::string replacement, PrependScheme scheme, bool split) {
  Step& step = steps_.emplace_back();
  step.prefix = replacement;
  step.replacement = std::move(replacement);
  step.scheme = scheme;
  step.cut_at_replacement = split;
}

void PreTokenizer::Rewrite(const Step& step, AlignedText& text, AlignedBuffer& buffer, const std::vector<Piece>& pieces,
                           std::vector<Piece>& next) {
  buffer.Clear();
  buffer.Reserve(text.text.size() + text.text.size() / 2);
  for (const Piece piece : pieces) {
    const std::string_view content = text.text.substr(piece.begin, piece.end - piece.begin);
    std::uint32_t open = static_cast<std::uint32_t>(buffer.size());
    const bool starts_with_space = !step.replacement.empty() && content.front() == ' ';
    const bool wanted = step.scheme == PrependScheme::kAlways ||
                        (step.scheme == PrependScheme::kFirst && text.IsOriginalStart(piece.begin));
    if (wanted && !starts_with_space && content.substr(0, step.prefix.size()) != step.prefix) {
      unsigned length = 0;
      DecodeUtf8(content, 0, length);
      buffer.AppendMade(step.prefix, text, piece.begin, piece.begin + length);
    }
    const auto cut = [&] {
      const auto here = static_cast<std::uint32_t>(buffer.size());
      AppendPiece({open, here}, next);
      open = here;
    };
    const std::size_t width = step.replacement.size();
    std::size_t copied = 0;
    const auto copy_until = [&](std::size_t at) {
      if (copied < at) buffer.AppendSlice(text, piece.begin + copied, piece.begin + at);
      copied = at;
    };
    for (std::size_t at = 0; width != 0 && at < content.size();) {
      const bool space = content[at] == ' ';
      const bool replaced = step.cut_at_replacement && content[at] == step.replacement[0] &&
                            content.substr(at, width) == step.replacement;
      if (!space && !replaced) {
        ++at;
        continue;
      }
      copy_until(at);
      if (step.cut_at_replacement && buffer.size() > open) cut();
      if (space) {
        buffer.AppendMade(step.replacement, text, piece.begin + at, piece.begin + at + 1);
        copied = at + 1;
      }
      at += space ? 1 : width;
    }
    copy_until(content.size());
    cut();
  }
  text = buffer.View();
}

Status PreTokenizer::Apply(AlignedText& text, PreTokenizerScratch& scratch, std::vector<Piece>& pieces) const {
  pieces.clear();
  if (text.text.empty()) return OkStatus();
  pieces.push_back({0, static_cast<std::uint32_t>(text.text.size())});
  std::size_t buffer = 0;
  for (const Step& step : steps_) {
    scratch.next.clear();
    if (step.splitter == nullptr) {
      Rewrite(step, text, scratch.buffers[buffer], pieces, scratch.next);
      buffer = 1 - buffer;
    } else {
      for (const Piece piece : pieces) {
        DRAFTMILL_RETURN_IF_ERROR(step.splitter->Split(text.text, piece, scratch.next));
      }
    }
    pieces.swap(scratch.next);
  }
  return OkStatus();
}

}  // namespace draftmill
