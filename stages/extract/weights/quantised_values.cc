#include "stages/extract/weights/quantised_values.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/small_floats.h"

namespace draftmill {
namespace {

constexpr int kNibbles = 16;
constexpr std::array<float, kNibbles> kInt4 = {-8.0F, -7.0F, -6.0F, -5.0F, -4.0F, -3.0F, -2.0F, -1.0F,
                                               0.0F,  1.0F,  2.0F,  3.0F,  4.0F,  5.0F,  6.0F,  7.0F};
/// Below it no product of a code (448 at most) with a scale is infinite.
constexpr float kLargestPlainScale = 0x1p118F;

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) table[bits] = ValueOfE4m3(bits);
  return table;
}

const std::array<float, 256>& E4m3Table() {
  static const std::array<float, 256> table = MakeE4m3Table();
  return table;
}

void Assign(float value, Bf16& out) { out = ToBf16(value); }
void Assign(float value, float& out) { out = RoundToBf16(value); }

/// The sixteen values of a group.
using Products = std::array<float, kNibbles>;

void Multiply(const std::array<float, kNibbles>& codes, float scale, Products& products) {
  for (std::size_t nibble = 0; nibble < kNibbles; ++nibble) products[nibble] = codes[nibble] * scale;
}

/// Looks up the nibbles of one group from an even element on.
template <typename W>
void LookUp(const std::byte* values, const std::array<W, kNibbles>& table, std::int64_t count, W* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto byte = std::to_integer<std::uint32_t>(values[i / 2]);
    out[i] = table[(i % 2 == 0 ? byte : byte >> 4) & 0xfU];
  }
}

#if defined(__x86_64__)

constexpr std::int64_t kLanes = 32;  ///< elements of one step of the vector forms

bool HasVectorForms() {
  static const bool has = __builtin_cpu_supports("sse4.1") != 0;
  return has;
}

/// bfloat16 bits of four finite floats, in the low halves of the lanes.
__attribute__((target("sse4.1"))) __m128i RoundFour(__m128 values) {
  const __m128i bits = _mm_castps_si128(values);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  return _mm_srli_epi32(_mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff))), 16);
}

/// LookUp of a multiple of 32 elements of one group: the table's bytes are looked up as bytes.
__attribute__((target("sse4.1"))) void LookUpVector(const std::byte* values, const Products& products,
                                                    std::int64_t count, Bf16* out) {
  __m128i rounded[4];
  for (std::size_t quarter = 0; quarter < 4; ++quarter)
    rounded[quarter] = RoundFour(_mm_loadu_ps(products.data() + 4 * quarter));
  const __m128i first = _mm_packus_epi32(rounded[0], rounded[1]);
  const __m128i second = _mm_packus_epi32(rounded[2], rounded[3]);
  const __m128i low_byte = _mm_set1_epi16(0xff);
  const __m128i low_table = _mm_packus_epi16(_mm_and_si128(first, low_byte), _mm_and_si128(second, low_byte));
  const __m128i high_table = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
  const __m128i low_nibble = _mm_set1_epi8(0xf);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i / 2));
    const __m128i even = _mm_and_si128(bytes, low_nibble);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_nibble);
    auto* to = reinterpret_cast<__m128i*>(out + i);
    for (const __m128i nibbles : {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)}) {
      const __m128i low = _mm_shuffle_epi8(low_table, nibbles);
      const __m128i high = _mm_shuffle_epi8(high_table, nibbles);
      _mm_storeu_si128(to++, _mm_unpacklo_epi8(low, high));
      _mm_storeu_si128(to++, _mm_unpackhi_epi8(low, high));
    }
  }
}

/// Four e4m3 values: their bits stand where those of a float do, but for the bias of the exponent. NaN becomes 480.
__attribute__((target("sse4.1"))) __m128 FourE4m3(const std::byte* values) {
  std::int32_t four = 0;
  std::memcpy(&four, values, sizeof four);
  const __m128i bits = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(four));
  const __m128i magnitude = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x7f)), 20);
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x80)), 24);
  return _mm_or_ps(_mm_mul_ps(_mm_castsi128_ps(magnitude), _mm_set1_ps(0x1p120F)), _mm_castsi128_ps(sign));
}

/// Values of one block; returns how many were done, a multiple of eight. Stops where a NaN stands.
__attribute__((target("sse4.1"))) std::int64_t ExpandFp8Vector(const std::byte* values, float scale, std::int64_t count,
                                                               Bf16* out) {
  const __m128 factor = _mm_set1_ps(scale);
  std::int64_t done = 0;
  for (; done + 8 <= count; done += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values + done));
    const __m128i nan = _mm_cmpeq_epi8(_mm_and_si128(bytes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
    if ((_mm_movemask_epi8(nan) & 0xff) != 0) break;
    const __m128i low = RoundFour(_mm_mul_ps(FourE4m3(values + done), factor));
    const __m128i high = RoundFour(_mm_mul_ps(FourE4m3(values + done + 4), factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + done), _mm_packus_epi32(low, high));
  }
  return done;
}

#endif

/// Elements of a group that the vector form does; 0 where there is none for W or this machine.
template <typename W>
std::int64_t LookUpFast(const std::byte* values, const Products& products, float scale, std::int64_t count, W* out) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<W, Bf16>) {
    const std::int64_t whole = count / kLanes * kLanes;
    // Rounding in vectors knows no NaN and no infinity: their groups take the plain form.
    if (whole > 0 && HasVectorForms() && std::abs(scale) < kLargestPlainScale) {
      LookUpVector(values, products, whole, out);
      return whole;
    }
  }
#endif
  return 0;
}

/// fill(index, products) gives the values of a group and returns its scale; assign(value, element) rounds to W.
template <typename W>
void ExpandNibbles(const std::byte* values, std::int64_t group, std::int64_t column, std::int64_t count, W* out,
                   const auto& fill, const auto& assign) {
  Products products;
  std::array<W, kNibbles> table;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t index = (column + done) / group;
    const std::int64_t end = std::min((index + 1) * group - column, count);
    const float scale = fill(index, products);
    if (done % 2 == 0) done += LookUpFast(values + done / 2, products, scale, end - done, out + done);
    if (done == end) continue;
    for (std::size_t nibble = 0; nibble < kNibbles; ++nibble) assign(products[nibble], table[nibble]);
    for (; done < end && done % 2 != 0; ++done)
      out[done] = table[std::to_integer<std::uint32_t>(values[done / 2]) >> 4];
    LookUp(values + done / 2, table, end - done, out + done);
    done = end;
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
void ExpandFp8(const std::byte* values, const float* scales, std::int64_t block, std::int64_t column,
               std::int64_t count, W* out) {
  const std::array<float, 256>& table = E4m3Table();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t index = (column + done) / block;
    const std::int64_t end = std::min((index + 1) * block - column, count);
    const float scale = scales[index];
#if defined(__x86_64__)
    if constexpr (std::is_same_v<W, Bf16>) {
      if (HasVectorForms() && std::abs(scale) < kLargestPlainScale)
        done += ExpandFp8Vector(values + done, scale, end - done, out + done);
    }
#endif
    for (; done < end; ++done) Assign(table[std::to_integer<std::size_t>(values[done])] * scale, out[done]);
  }
}

float RoundToHalf(float value) {
  const float magnitude = std::abs(value);
  if (!(magnitude < 65520.0F))
    return std::isnan(value) ? value : std::copysign(std::numeric_limits<float>::infinity(), value);
  // Adding and taking away a number of the last place's size rounds to even; below 2^-14 that place is 2^-24.
  const int exponent = std::max(std::ilogb(std::max(magnitude, 0x1p-14F)), -14);
  const float shift = std::ldexp(1.5F, exponent - 10 + 23);
  const float rounded = (magnitude + shift) - shift;
  return std::copysign(rounded, value);
}

template <typename W>
void ExpandInt4(const std::byte* values, const std::byte* scales, ScaleType type, std::int64_t group,
                std::int64_t column, std::int64_t count, W* out) {
  const auto to_bf16 = [](float value, W& element) { Assign(value, element); };
  const auto bits_of = [scales](std::int64_t index) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, scales + 2 * index, sizeof bits);
    return bits;
  };
  if (type == ScaleType::kBfloat16) {
    const auto fill = [&](std::int64_t index, Products& products) {
      const float scale = ToFloat(Bf16{bits_of(index)});
      Multiply(kInt4, scale, products);
      return scale;
    };
    return ExpandNibbles(values, group, column, count, out, fill, to_bf16);
  }
  const auto fill = [&](std::int64_t index, Products& products) {
    float scale = 0;
    if (type == ScaleType::kFloat32) {
      std::memcpy(&scale, scales + 4 * index, sizeof scale);
      Multiply(kInt4, scale, products);
      return scale;
    }
    scale = HalfToFloat(bits_of(index));
    Multiply(kInt4, scale, products);
    bool finite = true;
    for (float& product : products) {
      product = RoundToHalf(product);
      finite &= std::isfinite(product);
    }
    return finite ? scale : std::numeric_limits<float>::infinity();
  };
  if constexpr (std::is_same_v<W, float>) {
    ExpandNibbles(values, group, column, count, out, fill, [](float value, float& element) { element = value; });
  } else {
    ExpandNibbles(values, group, column, count, out, fill, to_bf16);
  }
}

template <typename W>
void ExpandMxfp4(const std::byte* values, const std::uint8_t* scales, std::int64_t group, std::int64_t column,
                 std::int64_t count, W* out) {
  // 255 is NaN in the standard; transformers' power of two is infinite there. Either way the layer's states show it.
  const auto fill = [scales](std::int64_t index, Products& products) {
    const float scale = std::ldexp(1.0F, static_cast<int>(scales[index]) - 127);
    Multiply(kE2m1Values, scale, products);
    return scale;
  };
  ExpandNibbles(values, group, column, count, out, fill, [](float value, W& element) { Assign(value, element); });
}

template void ExpandFp8(const std::byte*, const float*, std::int64_t, std::int64_t, std::int64_t, Bf16*);
template void ExpandFp8(const std::byte*, const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void ExpandInt4(const std::byte*, const std::byte*, ScaleType, std::int64_t, std::int64_t, std::int64_t,
                         Bf16*);
template void ExpandInt4(const std::byte*, const std::byte*, ScaleType, std::int64_t, std::int64_t, std::int64_t,
                         float*);
template void ExpandMxfp4(const std::byte*, const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, Bf16*);
template void ExpandMxfp4(const std::byte*, const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, float*);

}  // namespace draftmill
