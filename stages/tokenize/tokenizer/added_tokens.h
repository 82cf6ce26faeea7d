// Finding added tokens in a text, exactly as the AddedVocabulary of `tokenizers` does.
//
// The leftmost match wins, among those the longest; `single_word` drops a match that touches a word character, `lstrip`
// and `rstrip` swallow the white space beside it. Contents do not overlap; where one begins in swallowed white space, its
// match begins behind that. Linear in the text for contents of bounded
// length. Filled once, then const and safe from any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "stages/tokenize/tokenizer.h"
#include "stages/tokenize/tokenizer/aligned_text.h"

namespace draftmill {

/// How an added token is matched.
struct AddedTokenRule {
  std::string content;  ///< as it stands in the text that is searched
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
};

class AddedTokenMatcher {
 public:
  struct Match {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::int32_t id = 0;
  };

  /// Of rules with the same content the first is kept; empty contents are ignored.
  explicit AddedTokenMatcher(std::vector<AddedTokenRule> rules = {});

  bool empty() const { return rules_.empty(); }

  /// Replaces `matches` by those in `text`, in order. A special token that touches one of `plain_ranges` (of the
  /// original text) is passed over: its text stays text. Fails (kInvalidInput) where one of white space alone stands in
  /// what an rstrip swallowed.
  Status Find(const AlignedText& text, std::span<const ByteRange> plain_ranges, std::vector<Match>& matches) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // by byte, ascending
    std::int32_t rule = -1;
  };

  /// The longest rule whose content starts at `position`, or -1.
  std::int32_t LongestAt(std::string_view text, std::size_t position) const;
  std::uint32_t Child(std::uint32_t node, std::uint8_t byte) const;
  std::size_t NextCandidate(std::string_view text, std::size_t position) const;

  std::vector<AddedTokenRule> rules_;
  std::vector<Node> nodes_;
  std::array<bool, 256> first_bytes_{};
  std::bitset<65536> first_pairs_;  // first two bytes; a content of one byte sets all its pairs
  int only_first_byte_ = -1;
};

}  // namespace draftmill
