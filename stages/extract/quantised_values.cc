#include "stages/extract/quantised_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace draftmill {
namespace {

constexpr int kNibbles = 16;
constexpr std::array<float, kNibbles> kE2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                               -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

float ComputeE4m3(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 3) & 0xfU;
  const std::uint32_t mantissa = bits & 0x7U;
  if (exponent == 0xf && mantissa == 0x7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
  return (bits & 0x80U) != 0 ? -magnitude : magnitude;
}

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = ComputeE4m3(bits);
  return table;
}

const std::array<float, 256>& E4m3Table() {
  static const std::array<float, 256> table = MakeE4m3Table();
  return table;
}

void Assign(float value, Bf16& out) { out = ToBf16(value); }
void Assign(float value, float& out) { out = RoundToBf16(value); }

/// Looks up nibbles group by group; `fill` makes the sixteen values of a group.
template <typename W, typename Fill>
void ExpandNibbles(const std::byte* values, std::int64_t group, std::int64_t column, std::int64_t count, W* out, const Fill& fill) {
  std::array<W, kNibbles> table;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t index = (column + done) / group;
    const std::int64_t end = std::min((index + 1) * group - column, count);
    fill(index, table);
    for (; done < end; ++done) {
      const auto byte = std::to_integer<std::uint32_t>(values[done / 2]);
      out[done] = table[(done % 2 == 0 ? byte : byte >> 4) & 0xfU];
    }
  }
}

}  // namespace

float E4m3ToFloat(std::uint8_t bits) { return E4m3Table()[bits]; }

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

template <typename W>
void ExpandFp8(const std::byte* values, const float* scales, std::int64_t block, std::int64_t column, std::int64_t count, W* out) {
  const std::array<float, 256>& table = E4m3Table();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t index = (column + done) / block;
    const std::int64_t end = std::min((index + 1) * block - column, count);
    const float scale = scales[index];
    for (; done < end; ++done) Assign(table[std::to_integer<std::size_t>(values[done])] * scale, out[done]);
  }
}

template <typename W>
void ExpandInt4(const std::byte* values, const Bf16* scales, std::int64_t group, std::int64_t column, std::int64_t count, W* out) {
  ExpandNibbles(values, group, column, count, out, [scales](std::int64_t index, std::array<W, kNibbles>& table) {
    const float scale = ToFloat(scales[index]);
    for (int nibble = 0; nibble < kNibbles; ++nibble) {
      Assign(static_cast<float>(nibble - 8) * scale, table[static_cast<std::size_t>(nibble)]);
    }
  });
}

template <typename W>
void ExpandMxfp4(const std::byte* values, const std::uint8_t* scales, std::int64_t group, std::int64_t column,
                 std::int64_t count, W* out) {
  ExpandNibbles(values, group, column, count, out, [scales](std::int64_t index, std::array<W, kNibbles>& table) {
    // 255 is NaN in the standard; transformers' power of two is infinite there. Either way the layer's states show it.
    const float scale = std::ldexp(1.0F, static_cast<int>(scales[index]) - 127);
    for (std::size_t nibble = 0; nibble < kNibbles; ++nibble) Assign(kE2m1[nibble] * scale, table[nibble]);
  });
}

template void ExpandFp8(const std::byte*, const float*, std::int64_t, std::int64_t, std::int64_t, Bf16*);
template void ExpandFp8(const std::byte*, const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void ExpandInt4(const std::byte*, const Bf16*, std::int64_t, std::int64_t, std::int64_t, Bf16*);
template void ExpandInt4(const std::byte*, const Bf16*, std::int64_t, std::int64_t, std::int64_t, float*);
template void ExpandMxfp4(const std::byte*, const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, Bf16*);
template void ExpandMxfp4(const std::byte*, const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, float*);

}  // namespace draftmill
