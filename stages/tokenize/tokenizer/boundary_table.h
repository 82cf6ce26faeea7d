// Where a piece of text may be cut before BPE without changing a single id.
//
// Merging never crosses the border between two characters that stand side by side in no token: so a text cut at such
// borders gives the same tokens, in parts short enough to be found in a cache. That is what makes vocabularies without
// a pre-tokenizer (Llama-2, Mistral) and scripts without spaces fast.
//
// A set of hashes answers: it may see a pair that is not there, which only forgoes a cut. Filled once, then const and
// safe from any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stages/tokenize/tokenizer/token_table.h"
#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {

class BoundaryTable {
 public:
  /// Without tokens, nothing may be cut.
  BoundaryTable() = default;
  /// For a vocabulary whose tokens are pieces of UTF-8 text, which may begin or end inside a character.
  explicit BoundaryTable(const TokenTable& vocabulary);

  bool empty() const { return bits_.empty(); }

  /// The end of the part of `text` that starts at `begin`: the first border at which it may be cut. The text is a piece
  /// of valid UTF-8; one that begins inside a character is not cut, and none is cut before a character that it has not
  /// whole (a pre-tokenizer that sees the byte alphabet parts such pieces).
  std::size_t PartEnd(std::string_view text, std::size_t begin) const {
    const std::uint8_t* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    if ((bytes[begin] & 0xC0U) == 0x80U) return text.size();
    std::uint32_t left_length = Utf8SequenceLength(bytes[begin]);
    if (left_length > text.size() - begin) return text.size();
    std::uint32_t left = Pack(bytes + begin, left_length);
    for (std::size_t at = begin + left_length; at < text.size();) {
      const std::uint32_t right_length = Utf8SequenceLength(bytes[at]);
      if (right_length > text.size() - at) return text.size();
      const std::uint32_t right = Pack(bytes + at, right_length);
      if (!Has(left, right) &&
          (!partial_[(left & 0xFFU) << 8U | bytes[at]] || !HasPartial(bytes, at, left_length, right_length))) {
        return at;
      }
      left = right;
      left_length = right_length;
      at += right_length;
    }
    return text.size();
  }

 private:
  /// Up to four bytes as a number; the last one lowest.
  static std::uint32_t Pack(const std::uint8_t* bytes, std::uint32_t length) {
    std::uint32_t packed = bytes[0];
    for (std::uint32_t i = 1; i < length; ++i) packed = packed << 8U | bytes[i];
    return packed;
  }
  std::size_t BitOf(std::uint32_t left, std::uint32_t right) const {
    return static_cast<std::size_t>((std::uint64_t{left} << 32U | right) * 0x9E3779B97F4A7C15ULL >> shift_);
  }
  bool Has(std::uint32_t left, std::uint32_t right) const {
    const std::size_t bit = BitOf(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1U) != 0;
  }
  /// Is there a token that has the end of the character before `at` and the start of the one there?
  bool HasPartial(const std::uint8_t* bytes, std::size_t at, std::uint32_t left_length,
                  std::uint32_t right_length) const;
  class PairSet;
  void AddPairsOf(std::string_view token, PairSet& pairs);

  std::vector<std::uint64_t> bits_;
  unsigned shift_ = 63;
  std::bitset<65536> partial_;  // last byte before and first byte behind a border inside a token with half a character
};

}  // namespace draftmill
