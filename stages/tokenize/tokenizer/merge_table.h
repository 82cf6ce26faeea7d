// Which pairs of tokens merge, into what, and how early: the table that BPE asks for every pair of neighbours.
//
// Filled once, then const and safe from any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace draftmill {

class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

  /// A lower rank merges earlier; kNoRank where the pair does not merge.
  struct Merge {
    std::uint32_t rank = kNoRank;
    std::int32_t id = -1;
  };

  /// Makes room for so many pairs; call it once, before the first Set.
  void Reserve(std::size_t pairs) {
    slots_.assign(std::bit_ceil(pairs * 2 + 16), Slot{});
    shift_ = 64 - std::countr_zero(slots_.size());
  }

  /// Sets what a pair merges into; a later call for the same pair wins, as in `tokenizers`.
  void Set(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t key = KeyOf(left, right);
    std::size_t slot = SlotOf(key);
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {key, merge};
  }

  /// Calls visit(left, right, merge) for every pair, in no order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key == kEmpty) continue;
      visit(static_cast<std::int32_t>(slot.key >> 32U), static_cast<std::int32_t>(slot.key & 0xFFFFFFFFU), slot.merge);
    }
  }

  Merge Find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = KeyOf(left, right);
    for (std::size_t slot = SlotOf(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();

  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t KeyOf(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
  }
  std::size_t SlotOf(std::uint64_t key) const {
    return static_cast<std::size_t>((key ^ key >> 29U) * 0x9E3779B97F4A7C15ULL >> static_cast<unsigned>(shift_));
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  int shift_ = 60;
};

}  // namespace draftmill
