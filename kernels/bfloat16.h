// bfloat16 as 16 stored bits, and its conversions: the upper half of a float32, rounded to nearest even.
//
// Nothing but inline functions on plain values; safe from any thread. NaN stays NaN (made quiet).
#pragma once

#include <bit>
#include <cstdint>

namespace draftmill {

/// One stored bfloat16. The same layout as the format's BF16 and as at::BFloat16.
struct Bf16 {
  std::uint16_t bits = 0;
};

inline float ToFloat(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

inline Bf16 ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded)};
}

/// The nearest bfloat16 as a float.
inline float RoundToBf16(float value) { return ToFloat(ToBf16(value)); }

}  // namespace draftmill
