// What the kernels share: eight bfloat16 values at a time, roundings, sums over a warp and over a block. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/bfloat16.h"

namespace draftmill::cuda {

inline constexpr int kWarp = 32;
/// Values of one 16-byte access.
inline constexpr int kPack = 8;

__device__ inline float Widen(std::uint16_t bits) { return __uint_as_float(static_cast<std::uint32_t>(bits) << 16); }
__device__ inline std::uint16_t Narrow(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
__device__ inline float Rounded(float value) { return Widen(Narrow(value)); }

/// Eight values from row[at]. Without kAligned one by one, zeros from `cols` on.
template <bool kAligned>
__device__ inline void LoadPack(const Bf16* row, std::int64_t at, std::int64_t cols, float (&out)[kPack]) {
  if constexpr (kAligned) {
    const uint4 bits = *reinterpret_cast<const uint4*>(row + at);
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) out[i] = at + i < cols ? Widen(row[at + i].bits) : 0.0F;
  }
}

/// The same of float32 values.
template <bool kAligned>
__device__ inline void LoadPack(const float* row, std::int64_t at, std::int64_t cols, float (&out)[kPack]) {
  if constexpr (kAligned) {
    const float4 low = *reinterpret_cast<const float4*>(row + at);
    const float4 high = *reinterpret_cast<const float4*>(row + at + 4);
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) out[i] = at + i < cols ? row[at + i] : 0.0F;
  }
}

/// Rounds and stores eight values at row[at]; without kAligned only those before `cols`.
template <bool kAligned>
__device__ inline void StorePack(Bf16* row, std::int64_t at, std::int64_t cols, const float (&in)[kPack]) {
  if constexpr (kAligned) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = Narrow(in[2 * i]) | (static_cast<std::uint32_t>(Narrow(in[2 * i + 1])) << 16);
    }
    *reinterpret_cast<uint4*>(row + at) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (at + i < cols) row[at + i].bits = Narrow(in[i]);
    }
  }
}

/// The sum over groups of `width` neighbouring lanes (a power of two), in every lane of the group.
__device__ inline float GroupSum(float value, int width, std::uint32_t group_mask) {
  for (int distance = width / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(group_mask, value, distance);
  return value;
}

/// The sum over the block, in every thread. `partial` is one float per warp, used by this call alone.
__device__ inline float BlockSum(float value, float* partial) {
  value = GroupSum(value, kWarp, 0xffffffffU);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / kWarp ? partial[lane] : 0.0F;
  return GroupSum(value, kWarp, 0xffffffffU);
}

inline bool IsAligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }
inline unsigned CeilDiv(std::int64_t a, std::int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

}  // namespace draftmill::cuda
