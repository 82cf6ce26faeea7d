// What the loops of this folder share: eight lanes, roundings, e^x and tanh. Included by the *_body.h files alone, inside
// the namespace of an instruction set (see decoder_cpu_body.h); uses no inline function of the standard library.
#pragma once

#if !defined(DRAFTMILL_KERNEL_NAMESPACE)
#error "name the namespace of this instruction set first"
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/bfloat16.h"

namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE {
namespace {

/// Eight floats: one AVX register. Sums run in these lanes on every machine.
using Lanes = float __attribute__((vector_size(32)));
constexpr std::int64_t kLanes = 8;

inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  __builtin_memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

inline float SumLanes(Lanes lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

inline float BitsToFloat(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

inline std::uint32_t FloatToBits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// As ToBf16, without a branch.
inline std::uint32_t RoundedBits(float value) {
  const std::uint32_t bits = FloatToBits(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return ((bits & 0x7fffffffU) > 0x7f800000U ? (bits | 0x400000U) : rounded) & 0xffff0000U;
}

template <bool kRounds>
inline float Rounded(float value) {
  return kRounds ? BitsToFloat(RoundedBits(value)) : value;
}

/// Reads an operand of a product as the model has it: a float that stands for a bfloat16 is rounded when it is read.
template <bool kRounds>
inline float Load(float value) {
  return Rounded<kRounds>(value);
}
template <bool kRounds>
inline float Load(Bf16 value) {
  return BitsToFloat(static_cast<std::uint32_t>(value.bits) << 16);
}

template <bool kRounds>
inline void Store(float value, float& out) {
  out = Rounded<kRounds>(value);
}
template <bool kRounds>
inline void Store(float value, Bf16& out) {
  out.bits = static_cast<std::uint16_t>(RoundedBits(value) >> 16);
}

/// e^x to about one unit in the last place (Cephes' expf: reduction by ln 2 in two parts, polynomial of degree 6).
inline float Exp(float x) {
  const float low = x < -87.0F ? -87.0F : x;
  const float bounded = low > 88.0F ? 88.0F : low;
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const float whole = (bounded * 1.44269504088896341F + kMagic) - kMagic;
  const float rest = (bounded - whole * 0.693359375F) - whole * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * rest + 1.3981999507e-3F;
  p = p * rest + 8.3334519073e-3F;
  p = p * rest + 4.1665795894e-2F;
  p = p * rest + 1.6666665459e-1F;
  p = p * rest + 5.0000001201e-1F;
  p = (p * rest * rest + rest) + 1.0F;
  const auto exponent = static_cast<std::int32_t>(whole);
  const float result = BitsToFloat(FloatToBits(p) + (static_cast<std::uint32_t>(exponent) << 23));
  return x != x ? x : result;
}

/// tanh x to about two units in the last place (Cephes' tanhf: a polynomial near 0, from e^2x elsewhere).
inline float Tanh(float x) {
  const float magnitude = x < 0.0F ? -x : x;
  const float square = x * x;
  float p = -5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const float near_zero = p * square * x + x;
  const float far = 1.0F - 2.0F / (Exp(2.0F * magnitude) + 1.0F);
  const float with_sign = x < 0.0F ? -far : far;
  return magnitude < 0.625F ? near_zero : with_sign;
}

inline float Sigmoid(float x) { return 1.0F / (1.0F + Exp(-x)); }

}  // namespace
}  // namespace draftmill::DRAFTMILL_KERNEL_NAMESPACE
