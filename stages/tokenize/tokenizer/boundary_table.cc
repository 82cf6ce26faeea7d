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

BoundaryTable::BoundaryTable(const TokenTable& vocabulary) {
  std::vector<std::uint64_t> pairs;
  for (std::int32_t id = 0; id < vocabulary.id_limit(); ++id) AddPairsOf(vocabulary.Content(id), pairs);
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  // Sixteen bits a pair: one border in sixteen is missed.
  const std::size_t bits = std::bit_ceil(std::max<std::size_t>(pairs.size() * 16, 64));
  bits_.assign(bits / 64, 0);
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(bits));
  for (const std::uint64_t pair : pairs) {
    const std::size_t bit = BitOf(static_cast<std::uint32_t>(pair >> 32U), static_cast<std::uint32_t>(pair));
    bits_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

void BoundaryTable::AddPairsOf(std::string_view token, std::vector<std::uint64_t>& pairs) {
  std::string_view left;
  while (!token.empty()) {
    const std::string_view right = token.substr(0, UnitLength(token));
    token.remove_prefix(right.size());
    if (!left.empty()) {
      const auto* const left_bytes = reinterpret_cast<const std::uint8_t*>(left.data());
      const auto* const right_bytes = reinterpret_cast<const std::uint8_t*>(right.data());
      const std::uint32_t packed_left = Pack(left_bytes, static_cast<std::uint32_t>(left.size()));
      const std::uint32_t packed_right = Pack(right_bytes, static_cast<std::uint32_t>(right.size()));
      pairs.push_back(std::uint64_t{packed_left} << 32U | packed_right);
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
