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

  struct alignas(64) Slot {
    std::array<std::uint64_t, 3> key;  // the bytes of the piece, padded with zeros
    std::array<std::int32_t, kMaxTokens> ids;
    std::array<std::uint8_t, kMaxTokens> ends;
    std::uint8_t size;   // bytes of the piece; 0 in an empty slot
    std::uint8_t count;  // tokens
  };

  PieceCache() : slots_(kSlots) {}

  /// The slot where `piece` (1 to kMaxBytes bytes) belongs. `readable_end` is the end of memory that may be read.
  Slot& SlotOf(std::string_view piece, const char* readable_end, std::array<std::uint64_t, 3>& key) {
    LoadKey(piece, readable_end, key);
    std::uint64_t hash = (key[0] ^ piece.size()) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ hash >> 32U ^ key[1]) * 0xC2B2AE3D27D4EB4FULL;
    hash = (hash ^ hash >> 32U ^ key[2]) * 0x165667B19E3779F9ULL;
    return slots_[hash >> (64 - kSlotBits)];
  }
  static bool Holds(const Slot& slot, std::string_view piece, const std::array<std::uint64_t, 3>& key) {
    return slot.size == piece.size() && slot.key[0] == key[0] && slot.key[1] == key[1] && slot.key[2] == key[2];
  }
  static void Fill(Slot& slot, std::string_view piece, const std::array<std::uint64_t, 3>& key,
                   const std::vector<BpeToken>& tokens) {
    if (tokens.size() > kMaxTokens) return;
    slot.key = key;
    slot.size = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      slot.ids[i] = tokens[i].id;
      slot.ends[i] = static_cast<std::uint8_t>(tokens[i].end);
    }
  }

 private:
  static constexpr unsigned kSlotBits = 15;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;

  static void LoadKey(std::string_view piece, const char* readable_end, std::array<std::uint64_t, 3>& key) {
    if (readable_end - piece.data() < static_cast<std::ptrdiff_t>(kMaxBytes)) {
      key = {};
      std::memcpy(key.data(), piece.data(), piece.size());
      return;
    }
    std::memcpy(key.data(), piece.data(), kMaxBytes);
    for (std::size_t word = 0; word < 3; ++word) {
      const std::size_t used = piece.size() > word * 8 ? piece.size() - word * 8 : 0;
      if (used < 8) key[word] &= (std::uint64_t{1} << used * 8) - 1;
    }
  }

  std::vector<Slot> slots_;
};

static_assert(sizeof(PieceCache::Slot) == 64);

}  // namespace draftmill
