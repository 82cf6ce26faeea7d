#include "stages/tokenize/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

constexpr std::uint32_t kNoNode = 0;  // the root is nobody's child

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  unsigned length = 0;
  return UnicodeProperties::Get().IsRustWord(DecodeUtf8(text, PreviousCharacter(text, text.size()), length));
}

bool StartsWithWord(std::string_view text) {
  unsigned length = 0;
  return !text.empty() && UnicodeProperties::Get().IsRustWord(DecodeUtf8(text, 0, length));
}

/// Where the white space begins that `text` ends with.
std::size_t SpaceBegin(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t previous = PreviousCharacter(text, begin);
    unsigned length = 0;
    if ((UnicodeProperties::Get().Classes(DecodeUtf8(text, previous, length)) & kClassSpace) == 0) break;
    begin = previous;
  }
  return begin;
}

/// How many bytes of white space `text` starts with.
std::size_t SpaceLength(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    unsigned length = 0;
    if ((UnicodeProperties::Get().Classes(DecodeUtf8(text, end, length)) & kClassSpace) == 0) break;
    end += length;
  }
  return end;
}

/// How an original range lies to the plain ranges.
enum class Overlap : std::uint8_t { kNone, kPart, kInside };

Overlap OverlapWith(std::span<const ByteRange> plain_ranges, std::int64_t begin, std::int64_t end) {
  const auto range = std::upper_bound(plain_ranges.begin(), plain_ranges.end(), begin,
                                      [](std::int64_t at, const ByteRange& plain) { return at < plain.end; });
  if (range == plain_ranges.end() || range->begin >= end) return Overlap::kNone;
  return range->begin <= begin && end <= range->end ? Overlap::kInside : Overlap::kPart;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedTokenRule> rules) : nodes_(1) {
  for (AddedTokenRule& rule : rules) {
    if (rule.content.empty()) continue;
    std::uint32_t node = 0;
    for (const char character : rule.content) {
      const auto byte = static_cast<std::uint8_t>(character);
      std::uint32_t child = Child(node, byte);
      if (child == kNoNode) {
        child = static_cast<std::uint32_t>(nodes_.size());
        auto& children = nodes_[node].children;
        children.insert(std::lower_bound(children.begin(), children.end(), std::pair(byte, 0U)), {byte, child});
        nodes_.emplace_back();
      }
      node = child;
    }
    if (nodes_[node].rule >= 0) continue;
    nodes_[node].rule = static_cast<std::int32_t>(rules_.size());
    const auto first = static_cast<std::uint8_t>(rule.content[0]);
    first_bytes_[first] = true;
    if (rule.content.size() == 1) {
      for (std::size_t second = 0; second < 256; ++second) first_pairs_.set(first * std::size_t{256} + second);
    } else {
      first_pairs_.set(first * std::size_t{256} + static_cast<std::uint8_t>(rule.content[1]));
    }
    rules_.push_back(std::move(rule));
  }
  if (std::count(first_bytes_.begin(), first_bytes_.end(), true) == 1) {
    only_first_byte_ =
        static_cast<int>(std::find(first_bytes_.begin(), first_bytes_.end(), true) - first_bytes_.begin());
  }
}

std::uint32_t AddedTokenMatcher::Child(std::uint32_t node, std::uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto found = std::lower_bound(children.begin(), children.end(), std::pair(byte, 0U));
  return found != children.end() && found->first == byte ? found->second : kNoNode;
}

std::int32_t AddedTokenMatcher::LongestAt(std::string_view text, std::size_t position) const {
  std::int32_t longest = -1;
  std::uint32_t node = 0;
  for (; position < text.size(); ++position) {
    node = Child(node, static_cast<std::uint8_t>(text[position]));
    if (node == kNoNode) break;
    if (nodes_[node].rule >= 0) longest = nodes_[node].rule;
  }
  return longest;
}

/// The next position from `position` at which a content may start, or the end.
std::size_t AddedTokenMatcher::NextCandidate(std::string_view text, std::size_t position) const {
  const std::size_t size = text.size();
  while (position < size) {
    if (only_first_byte_ >= 0) {
      const void* const found = std::memchr(text.data() + position, only_first_byte_, size - position);
      if (found == nullptr) return size;
      position = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    } else {
      while (position < size && !first_bytes_[static_cast<std::uint8_t>(text[position])]) ++position;
      if (position == size) return size;
    }
    const std::size_t first = static_cast<std::uint8_t>(text[position]);
    const std::size_t second = position + 1 < size ? static_cast<std::uint8_t>(text[position + 1]) : 0;
    if (position + 1 == size || first_pairs_.test(first * 256 + second)) return position;
    ++position;
  }
  return size;
}

Status AddedTokenMatcher::Find(const AlignedText& aligned, std::span<const ByteRange> plain_ranges,
                               std::vector<Match>& matches) const {
  matches.clear();
  if (rules_.empty()) return OkStatus();
  const std::string_view text = aligned.text;
  std::size_t previous_end = 0;
  std::size_t position = 0;
  while ((position = NextCandidate(text, position)) < text.size()) {
    const std::int32_t found = LongestAt(text, position);
    if (found < 0) {
      ++position;
      continue;
    }
    const AddedTokenRule& rule = rules_[static_cast<std::size_t>(found)];
    std::size_t begin = position;
    std::size_t end = position + rule.content.size();
    position = end;
    if (rule.special && !plain_ranges.empty()) {
      const Overlap overlap = OverlapWith(plain_ranges, aligned.OriginalBegin(begin), aligned.OriginalEnd(end - 1));
      // A chance match across the border must not hide a token that starts behind it.
      if (overlap == Overlap::kPart) position = begin + 1;
      if (overlap != Overlap::kNone) continue;
    }
    if (rule.single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    // White space that an rstrip swallowed is searched all the same: a content may begin in it and reach beyond.
    const bool begins_in_swallowed = begin < previous_end;
    if (rule.lstrip) begin = SpaceBegin(text.substr(0, begin));
    begin = std::max(begin, previous_end);
    if (rule.rstrip) end += SpaceLength(text.substr(end));
    if (begins_in_swallowed && end <= previous_end) {
      if (rule.lstrip && end == previous_end) continue;  // nothing is left of it
      // There the original gives the white space twice, or crashes.
      return InvalidInput("the added token of id " + std::to_string(rule.id) +
                          " stands inside the white space that the one before it swallows (rstrip)");
    }
    matches.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), rule.id});
    previous_end = end;
  }
  return OkStatus();
}

}  // namespace draftmill
