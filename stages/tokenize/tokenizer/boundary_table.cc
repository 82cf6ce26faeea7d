#include "stages/tokenize/tokenizer/boundary_table.h"

#include <algorithm>
#include <bit>

namespace draftmill {
namespace {

bool IsContinuation(std::uint8_t byte) { return (byte & 0xC0U) == 0x80U; }

/// The bytes at the start of `rest` that belong to one character: all of it, or what the token has of it.
std::size_t UnitLength(std::string_view rest) {
  const auto lead = static_cast<std::uint8_t>(rest[0]);
  const std::size_t most = IsContinuation(lead) ? 3 : Utf8SequenceLength(lead);
  std::size_t length = 1;
  while (length < most && length < rest.size() && IsContinuation(static_cast<std::uint8_t>(rest[length]))) ++length;
  return length;
}

bool IsWhole(std::string_view unit) {
  const auto lead = static_cast<std::uint8_t>(unit[0]);
  return !IsContinuation(lead) && unit.size() == Utf8SequenceLength(lead);
}

}  // namespace

/// The distinct pairs of a vocabulary, whose tokens hold each of them many times.
class BoundaryTable::PairSet {
 public:
  void Insert(std::uint32_t left, std::uint32_t right) {
    if (size_ * 2 >= slots_.size()) Grow();
    Place(std::uint64_t{left} << 32U | right);
  }
  std::size_t size() const { return size_; }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const std::uint64_t pair : slots_) {
      if (pair != kEmpty) visit(static_cast<std::uint32_t>(pair >> 32U), static_cast<std::uint32_t>(pair));
    }
  }

 private:
  /// No unit is four times this byte, which begins no character and continues none.
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  void Place(std::uint64_t pair) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = static_cast<std::size_t>((pair ^ pair >> 29U) * 0x9E3779B97F4A7C15ULL >> 20U) & mask;
    while (slots_[slot] != kEmpty && slots_[slot] != pair) slot = (slot + 1) & mask;
    if (slots_[slot] == pair) return;
    slots_[slot] = pair;
    ++size_;
  }
  void Grow() {
    std::vector<std::uint64_t> old(slots_.size() * 4, kEmpty);
    old.swap(slots_);
    size_ = 0;
    for (const std::uint64_t pair : old) {
      if (pair != kEmpty) Place(pair);
    }
  }

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(std::size_t{1} << 14, kEmpty);
  std::size_t size_ = 0;
};

BoundaryTable::BoundaryTable(const TokenTable& vocabulary) {
  PairSet pairs;
  for (std::int32_t id = 0; id < vocabulary.id_limit(); ++id) AddPairsOf(vocabulary.Content(id), pairs);
  // Sixteen bits a pair: one border in sixteen is missed.
  const std::size_t bits = std::bit_ceil(std::max<std::size_t>(pairs.size() * 16, 64));
  bits_.assign(bits / 64, 0);
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(bits));
  pairs.ForEach([&](std::uint32_t left, std::uint32_t right) {
    const std::size_t bit = BitOf(left, right);
    bits_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  });
}

void BoundaryTable::AddPairsOf(std::string_view token, PairSet& pairs) {
  std::string_view left;
  while (!token.empty()) {
    const std::string_view right = token.substr(0, UnitLength(token));
    token.remove_prefix(right.size());
    if (!left.empty()) {
      const auto* const left_bytes = reinterpret_cast<const std::uint8_t*>(left.data());
      const auto* const right_bytes = reinterpret_cast<const std::uint8_t*>(right.data());
      const std::uint32_t packed_left = Pack(left_bytes, static_cast<std::uint32_t>(left.size()));
      const std::uint32_t packed_right = Pack(right_bytes, static_cast<std::uint32_t>(right.size()));
      pairs.Insert(packed_left, packed_right);
      if (!IsWhole(left) || !IsWhole(right)) partial_.set((packed_left & 0xFFU) << 8U | right_bytes[0]);
    }
    left = right;
  }
}

bool BoundaryTable::HasPartial(const std::uint8_t* bytes, std::size_t at, std::uint32_t left_length,
                               std::uint32_t right_length) const {
  for (std::uint32_t before = 1; before <= left_length; ++before) {
    const std::uint32_t left = Pack(bytes + at - before, before);
    for (std::uint32_t behind = 1; behind <= right_length; ++behind) {
      if (Has(left, Pack(bytes + at, behind))) return true;
    }
  }
  return false;
}

}  // namespace draftmill
