// Byte pair encoding of one piece of text: the symbols of its characters (or bytes), merged in the order of the ranks.
//
// Two kinds of units: bytes (`byte_level` vocabularies and rank files, whose contents are bytes of the text) and
// characters (SentencePiece-like vocabularies, where a character that the vocabulary lacks becomes byte tokens `<0x..>`
// or the unknown token). The order of merges is that of `tokenizers`: lowest rank first, leftmost first among equals.
//
// A model is const and safe from any thread; BpeScratch belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stages/tokenize/tokenizer/boundary_table.h"
#include "stages/tokenize/tokenizer/merge_table.h"
#include "stages/tokenize/tokenizer/token_table.h"

namespace draftmill {

/// A token of a piece and where its bytes end; they begin where those of the token before end.
struct BpeToken {
  std::int32_t id = 0;
  std::uint32_t end = 0;
};

/// What a BPE model is made of. Ids are of the vocabulary.
struct BpeParts {
  TokenTable vocabulary;
  MergeTable merges;
  bool byte_units = false;       ///< units are bytes, not characters
  bool ignore_merges = false;    ///< a piece that is a token as a whole is that token
  bool byte_fallback = false;    ///< characters that the vocabulary lacks become `<0x..>` tokens
  bool fuse_unknown = false;     ///< neighbouring unknown characters become one unknown token
  std::int32_t unknown_id = -1;  ///< -1: unknown characters are dropped
};

/// Buffers of one thread.
struct BpeScratch {
  struct Symbol {
    std::int32_t id;
    std::uint32_t end;
    std::uint32_t rank;   // of the merge with the next symbol
    std::int32_t merged;  // what that merge gives
  };
  struct Link {
    std::uint32_t previous;
    std::uint32_t next;
  };
  /// The places where one merge may be done, in the order of the text once it is sorted.
  struct Bucket {
    std::vector<std::uint32_t> positions;
    std::size_t done = 0;
    bool sorted = true;
    bool waiting = false;  // its rank is in the queue
  };
  std::vector<Symbol> symbols;
  std::vector<Link> links;
  std::vector<Bucket> buckets;               // of the ranks seen in this piece
  std::vector<std::int32_t> bucket_of_rank;  // -1 between pieces
  std::vector<std::uint32_t> used_ranks;     // whose bucket_of_rank is set
  std::vector<std::uint32_t> queue;          // a heap of ranks, lowest first
  // The pair that was looked up last: a run of one character asks for few pairs, again and again.
  std::int32_t last_left = -1;
  std::int32_t last_right = -1;
  MergeTable::Merge last_merge;
};

class BpeModel {
 public:
  explicit BpeModel(BpeParts parts);

  /// True where `piece` as a whole is a token that goes before all merging (ignore_merges).
  bool FindWhole(std::string_view piece, BpeToken& token) const;
  /// Replaces `tokens` by those of `piece` (not empty, valid UTF-8 where units are characters), by merging alone.
  void Encode(std::string_view piece, BpeScratch& scratch, std::vector<BpeToken>& tokens) const;
  /// The end of the first part of `piece` that can be merged on its own without changing anything.
  std::size_t PartEnd(std::string_view piece, std::size_t begin) const {
    return boundaries_.empty() ? piece.size() : boundaries_.PartEnd(piece, begin);
  }

  const TokenTable& vocabulary() const { return parts_.vocabulary; }

 private:
  void AppendUnits(std::string_view piece, std::vector<BpeScratch::Symbol>& symbols) const;
  void AppendCharacters(std::string_view piece, std::vector<BpeScratch::Symbol>& symbols) const;
  std::int32_t CharacterId(std::string_view character, std::uint32_t code_point) const;
  bool MergesAreOfText() const;
  void MergeShort(std::vector<BpeScratch::Symbol>& symbols) const;
  void MergeLong(BpeScratch& scratch) const;
  void PrepareBuckets(BpeScratch& scratch) const;
  void RateLong(BpeScratch& scratch, std::uint32_t position) const;
  bool MergeBucket(BpeScratch& scratch, std::uint32_t rank) const;

  BpeParts parts_;
  std::array<std::int32_t, 256> byte_ids_{};   // the token of each byte (byte units), or of each fallback byte
  std::array<std::int32_t, 128> ascii_ids_{};  // the token of each ASCII character (character units)
  std::uint32_t rank_limit_ = 0;
  bool all_fallback_bytes_ = false;
  BoundaryTable boundaries_;
};

}  // namespace draftmill
