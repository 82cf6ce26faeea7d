// The tokens of short pieces that were seen before: natural text repeats its words.
//
// Direct-mapped, of fixed size: a new piece takes the place of whatever hashes there, so memory is bounded and the
// result never depends on the cache. One slot is one cache line. Belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "stages/tokenize/tokenizer/bpe_model.h"

namespace draftmill {

class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 24;
  static constexpr std::size_t kMaxTokens = 7;

  /// A part of a piece is merged alone; a whole piece may be a token before merging. The two never share an entry.
  enum class Kind : std::uint8_t { kWhole = 0, kPart = 0x80 };

  struct Key {
    std::array<std::uint64_t, 3> words;  // the bytes, padded with zeros
    std::uint8_t size_and_kind;
  };
  struct alignas(64) Slot {
    std::array<std::uint64_t, 3> words;
    std::array<std::int32_t, kMaxTokens> ids;
    std::array<std::uint8_t, kMaxTokens> ends;
    std::uint8_t size_and_kind;  // 0 in an empty slot
    std::uint8_t count;
  };

  PieceCache() : slots_(kSlots) {}

  /// The key of 1 to kMaxBytes bytes. `readable_end` is the end of the memory that may be read behind them.
  static Key MakeKey(std::string_view bytes, const char* readable_end, Kind kind) {
    Key key;
    key.size_and_kind = static_cast<std::uint8_t>(bytes.size() | static_cast<std::uint8_t>(kind));
    if (readable_end - bytes.data() < static_cast<std::ptrdiff_t>(kMaxBytes)) {
      key.words = {};
      std::memcpy(key.words.data(), bytes.data(), bytes.size());
      return key;
    }
    std::memcpy(key.words.data(), bytes.data(), kMaxBytes);
    for (std::size_t word = 0; word < 3; ++word) {
      const std::size_t used = bytes.size() > word * 8 ? bytes.size() - word * 8 : 0;
      if (used < 8) key.words[word] &= (std::uint64_t{1} << used * 8) - 1;
    }
    return key;
  }
  Slot& SlotOf(const Key& key) {
    std::uint64_t hash = (key.words[0] ^ key.size_and_kind) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ hash >> 32U ^ key.words[1]) * 0xC2B2AE3D27D4EB4FULL;
    hash = (hash ^ hash >> 32U ^ key.words[2]) * 0x165667B19E3779F9ULL;
    return slots_[hash >> (64 - kSlotBits)];
  }
  static bool Holds(const Slot& slot, const Key& key) {
    return slot.size_and_kind == key.size_and_kind && slot.words == key.words;
  }
  /// Puts the tokens there, unless they are too many.
  static void Fill(Slot& slot, const Key& key, const std::vector<BpeToken>& tokens) {
    if (tokens.size() > kMaxTokens) return;
    slot.words = key.words;
    slot.size_and_kind = key.size_and_kind;
    slot.count = static_cast<std::uint8_t>(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      slot.ids[i] = tokens[i].id;
      slot.ends[i] = static_cast<std::uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr unsigned kSlotBits = 15;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;

  std::vector<Slot> slots_;
};

static_assert(sizeof(PieceCache::Slot) == 64);

}  // namespace draftmill
