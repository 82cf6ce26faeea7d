// Floating-point formats of eight and four bits that quantised checkpoints store, by their definition.
//
// Nothing but inline functions and tables of plain values; safe from any thread.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace draftmill {

/// The values of E2M1 by their four bits.
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                      -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// The value of an E4M3 without infinities (OCP FP8), by its low eight bits.
inline float ValueOfE4m3(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 3) & 0xfU;
  const std::uint32_t mantissa = bits & 0x7U;
  if (exponent == 0xf && mantissa == 0x7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
  return (bits & 0x80U) != 0 ? -magnitude : magnitude;
}

}  // namespace draftmill
