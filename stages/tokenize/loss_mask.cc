#include "stages/tokenize/loss_mask.h"

#include <algorithm>
#include <string_view>

#include "stages/template/unicode_text.h"

namespace draftmill {
namespace {

using jinja::FieldKind;
using jinja::FieldSlot;
using jinja::Provenance;

/// A run of the text with the message that it belongs to.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Provenance tag;
};

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80; }

/// Everything about one rendering that the turns share.
class MaskBuilder {
 public:
  MaskBuilder(const RenderedText& rendered, const std::vector<FieldSlot>& slots, const Encoding& encoding,
              const LossMaskOptions& options, LossMaskResult& result)
      : rendered_(rendered), slots_(slots), encoding_(encoding), options_(options), result_(result) {}

  /// Byte ranges that one turn supervises go to `ranges`, ascending.
  void AddTurn(const SupervisedTurn& turn, std::span<const Piece> pieces, std::vector<ByteRange>& ranges) {
    const std::int64_t start = SkipPrompt(turn.prompt, pieces);
    const std::int64_t end = FindEnd(start, pieces);
    if (end <= start) return;
    for (const Piece& piece : pieces) {
      if (IsLeftOut(piece.tag)) continue;
      AddRange(std::max(piece.begin, start), std::min(piece.end, end), ranges);
    }
    // The stop token of a template that writes none of its own lies beyond the turn's last byte.
    if (!pieces.empty() && end > pieces.back().end) AddRange(std::max(start, pieces.back().end), end, ranges);
  }

  /// Marks tokens that lie in the ranges, and counts those that lie in them partly.
  void MarkTokens(std::span<const ByteRange> ranges) {
    std::size_t range = 0;
    for (std::size_t token = 0; token < encoding_.ids.size(); ++token) {
      const std::int64_t begin = encoding_.begin[token];
      const std::int64_t end = encoding_.end[token];
      while (range < ranges.size() && ranges[range].end <= begin) ++range;
      if (range == ranges.size()) break;
      if (ranges[range].begin >= end) continue;
      if (ranges[range].begin <= begin && end <= ranges[range].end) {
        result_.mask[token] = 1;
        ++result_.supervised_tokens;
      } else {
        ++result_.boundary_tokens;
      }
    }
  }

  bool IsStop(std::size_t token) const {
    return std::binary_search(options_.stop_tokens.begin(), options_.stop_tokens.end(), encoding_.ids[token]);
  }

  static void AddRange(std::int64_t begin, std::int64_t end, std::vector<ByteRange>& ranges) {
    if (begin >= end) return;
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  }

  bool IsLeftOut(Provenance tag) const {
    return !options_.train_on_reasoning && tag.is_field() && slots_[tag.slot()].kind == FieldKind::kReasoning;
  }

 private:
  /// The first byte of the turn after its longest common prefix with the prompt, in whole characters.
  std::int64_t SkipPrompt(const GenerationPrompt& generation_prompt, std::span<const Piece> pieces) const {
    const std::string_view prompt = generation_prompt.text;
    std::size_t matched = 0;
    for (const Piece& piece : pieces) {
      for (std::int64_t at = piece.begin; at < piece.end; ++at, ++matched) {
        const char byte = rendered_.text[static_cast<std::size_t>(at)];
        if (matched < prompt.size() && prompt[matched] == byte) continue;
        if (generation_prompt.counts_whole_only && matched < prompt.size()) return pieces.front().begin;
        while (at > piece.begin && IsContinuation(rendered_.text[static_cast<std::size_t>(at)])) --at;
        return at;
      }
    }
    return pieces.empty() ? 0 : pieces.back().end;
  }

  std::size_t FirstTokenFrom(std::int64_t position) const {
    return static_cast<std::size_t>(std::lower_bound(encoding_.begin.begin(), encoding_.begin.end(), position) -
                                    encoding_.begin.begin());
  }

  /// Where the turn's supervision ends: after its last stop token, or as the rule says where it has none.
  std::int64_t FindEnd(std::int64_t start, std::span<const Piece> pieces) {
    for (std::size_t i = pieces.size(); i > 0 && pieces[i - 1].end > start; --i) {
      const Piece& piece = pieces[i - 1];
      if (piece.tag.is_field()) continue;
      for (std::size_t token = FirstTokenFrom(piece.end); token > 0; --token) {
        const std::size_t candidate = token - 1;
        if (encoding_.begin[candidate] < std::max(piece.begin, start)) break;
        if (!IsStop(candidate) || encoding_.end[candidate] > piece.end) continue;
        return options_.supervise_stop_token ? encoding_.end[candidate] : encoding_.begin[candidate];
      }
    }
    if (pieces.empty()) return start;
    const std::int64_t turn_end = pieces.back().end;
    const std::size_t next = FirstTokenFrom(turn_end);
    if (next < encoding_.ids.size() && encoding_.begin[next] == turn_end && IsStop(next) && IsLiteral(next)) {
      ++result_.turns_stopped_by_next;
      return options_.supervise_stop_token ? encoding_.end[next] : turn_end;
    }
    ++result_.turns_without_stop;
    return EndOfText(start, pieces);
  }

  bool IsLiteral(std::size_t token) const {
    const auto run = std::upper_bound(
        rendered_.runs.begin(), rendered_.runs.end(), encoding_.begin[token],
        [](std::int64_t position, const jinja::TextRun& candidate) { return position < std::int64_t{candidate.end}; });
    return run != rendered_.runs.end() && run->tag.is_literal() && encoding_.end[token] <= std::int64_t{run->end};
  }

  /// The end of the last text that stems from the message: white space that the template wrote after it does not.
  std::int64_t EndOfText(std::int64_t start, std::span<const Piece> pieces) const {
    for (std::size_t i = pieces.size(); i > 0; --i) {
      const Piece& piece = pieces[i - 1];
      if (piece.tag.is_field()) return piece.end;
      const std::string_view text =
          std::string_view(rendered_.text)
              .substr(static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(piece.end - piece.begin));
      const std::size_t blank = jinja::TrailingSpaceBytes(text);
      if (blank < text.size()) return piece.end - static_cast<std::int64_t>(blank);
    }
    return start;
  }

  const RenderedText& rendered_;
  const std::vector<FieldSlot>& slots_;
  const Encoding& encoding_;
  const LossMaskOptions& options_;
  LossMaskResult& result_;
};

/// The pieces of each turn, in one pass over the runs. What a later message shows again of a turn, such as the called
/// function's name beside its result, is no part of it: the model has no say in it. Text that stands nowhere but in a later
/// message's iteration is the turn's all the same: templates hold text back, or join messages of one role.
std::vector<std::vector<Piece>> PiecesOfTurns(const RenderedText& rendered, const std::vector<FieldSlot>& slots,
                                              std::size_t messages, std::span<const SupervisedTurn> turns) {
  std::vector<std::int32_t> turn_of(messages, -1);
  for (std::size_t i = 0; i < turns.size(); ++i)
    turn_of[static_cast<std::size_t>(turns[i].message)] = static_cast<std::int32_t>(i);
  std::vector<std::vector<Piece>> pieces(turns.size());
  std::vector<bool> is_shown(slots.size(), false);
  std::int64_t begin = 0;
  for (const jinja::TextRun& run : rendered.runs) {
    const std::int32_t message = MessageOfRun(run.tag, slots);
    const bool is_shown_again = run.tag.in_later_message() && is_shown[run.tag.slot()];
    if (run.tag.is_field() && !run.tag.in_later_message()) is_shown[run.tag.slot()] = true;
    if (!is_shown_again && message >= 0 && static_cast<std::size_t>(message) < messages &&
        turn_of[static_cast<std::size_t>(message)] >= 0) {
      pieces[static_cast<std::size_t>(turn_of[static_cast<std::size_t>(message)])].push_back({begin, run.end, run.tag});
    }
    begin = run.end;
  }
  return pieces;
}

/// What the template marks with {% generation %}, less what stems from another role or from a turn that is not asked
/// for. Marked text of no message, such as an end token after the loop, goes with the message before it.
std::vector<ByteRange> GenerationRanges(const RenderedText& rendered, const std::vector<FieldSlot>& slots,
                                        const std::vector<MessageRole>& roles, std::span<const SupervisedTurn> turns,
                                        const MaskBuilder& builder) {
  std::vector<ByteRange> ranges;
  std::int64_t begin = 0;
  std::int32_t message = -1;
  for (const jinja::TextRun& run : rendered.runs) {
    if (const std::int32_t own = MessageOfRun(run.tag, slots); own >= 0) message = own;
    const bool is_asked =
        message >= 0 && std::any_of(turns.begin(), turns.end(),
                                    [message](const SupervisedTurn& turn) { return turn.message == message; });
    const bool is_own = message >= 0 && roles[static_cast<std::size_t>(message)] == MessageRole::kAssistant &&
                        (run.tag.is_literal() || slots[run.tag.slot()].message == message);
    if (run.tag.in_generation() && is_asked && is_own && !builder.IsLeftOut(run.tag)) {
      MaskBuilder::AddRange(begin, run.end, ranges);
    }
    begin = run.end;
  }
  return ranges;
}

}  // namespace

void ComputeLossMask(const RenderedText& rendered, const std::vector<FieldSlot>& slots,
                     const std::vector<MessageRole>& roles, const Encoding& encoding,
                     std::span<const SupervisedTurn> turns, const LossMaskOptions& options, LossMaskResult& result) {
  result = {};
  result.mask.assign(encoding.ids.size(), 0);
  if (!turns.empty()) result.last_supervised_message = turns.back().message;
  MaskBuilder builder(rendered, slots, encoding, options, result);
  std::vector<ByteRange> ranges;
  if (options.use_generation_blocks) {
    ranges = GenerationRanges(rendered, slots, roles, turns, builder);
  } else {
    const std::vector<std::vector<Piece>> pieces = PiecesOfTurns(rendered, slots, roles.size(), turns);
    for (std::size_t i = 0; i < turns.size(); ++i) builder.AddTurn(turns[i], pieces[i], ranges);
    std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  }
  builder.MarkTokens(ranges);
  if (!options.use_generation_blocks || options.supervise_stop_token) return;
  for (std::size_t token = 0; token < result.mask.size(); ++token) {
    if (result.mask[token] == 0 || !builder.IsStop(token)) continue;
    result.mask[token] = 0;
    --result.supervised_tokens;
  }
}

}  // namespace draftmill
