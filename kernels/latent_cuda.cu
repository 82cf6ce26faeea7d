// AssembleLatent of decoder_cuda.h.
#include "kernels/cuda_check.h"
#include "kernels/decoder_cuda.h"
#include "kernels/vector_cuda.h"

namespace draftmill::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxRopeDim = 256;

__device__ inline void TurnPair(float& a, float& b, float cosine, float sine) {
  const float first = Rounded(Rounded(a * cosine) - Rounded(b * sine));
  b = Rounded(Rounded(b * cosine) + Rounded(a * sine));
  a = first;
}

/// One pair of a rotated part, from memory to memory.
__device__ inline void TurnStored(const Bf16* from, Bf16* to, std::int64_t pair, std::int64_t half, bool interleaved,
                                  float cosine, float sine) {
  const std::int64_t first = interleaved ? 2 * pair : pair;
  const std::int64_t second = interleaved ? 2 * pair + 1 : pair + half;
  float a = Widen(from[first].bits);
  float b = Widen(from[second].bits);
  TurnPair(a, b, cosine, sine);
  to[first].bits = Narrow(a);
  to[second].bits = Narrow(b);
}

/// A block of threads a row. With kAligned parts have whole packs; pairs of q then go four at a time where they are
/// neighbours.
template <bool kAligned>
__global__ void AssembleKernel(AssembleLatentArgs args) {
  __shared__ __align__(16) std::uint16_t turned_bits[kMaxRopeDim];
  auto* const turned = reinterpret_cast<Bf16*>(turned_bits);
  const std::int64_t r = blockIdx.x;
  const std::int64_t half = args.rope_dim / 2;
  const std::int64_t head_dim = args.nope_dim + args.rope_dim;
  const float* const cosines = args.cosines + args.positions[r] * half;
  const float* const sines = args.sines + args.positions[r] * half;
  const Bf16* const k_rope = args.k_rope + r * args.k_rope_stride;
  for (std::int64_t pair = threadIdx.x; pair < half; pair += blockDim.x) {
    TurnStored(k_rope, turned, pair, half, args.interleaved, cosines[pair], sines[pair]);
  }
  Bf16* const q = args.q + r * args.heads * head_dim;
  if (kAligned && args.interleaved) {
    const std::int64_t packs = args.rope_dim / kPack;
    for (std::int64_t item = threadIdx.x; item < args.heads * packs; item += blockDim.x) {
      const std::int64_t at = item % packs * kPack;
      Bf16* const part = q + item / packs * head_dim + args.nope_dim;
      float values[kPack];
      LoadPack<true>(part, at, args.rope_dim, values);
#pragma unroll
      for (int i = 0; i < kPack; i += 2) TurnPair(values[i], values[i + 1], cosines[(at + i) / 2], sines[(at + i) / 2]);
      StorePack<true>(part, at, args.rope_dim, values);
    }
  } else {
    for (std::int64_t item = threadIdx.x; item < args.heads * half; item += blockDim.x) {
      const std::int64_t pair = item % half;
      Bf16* const part = q + item / half * head_dim + args.nope_dim;
      TurnStored(part, part, pair, half, args.interleaved, cosines[pair], sines[pair]);
    }
  }
  __syncthreads();
  constexpr std::int64_t kStep = kAligned ? kPack : 1;
  const Bf16* const kv = args.kv + r * args.heads * (args.nope_dim + args.v_dim);
  Bf16* const k = args.k + r * args.heads * head_dim;
  const std::int64_t steps = head_dim / kStep;
  for (std::int64_t item = threadIdx.x; item < args.heads * steps; item += blockDim.x) {
    const std::int64_t head = item / steps;
    const std::int64_t at = item % steps * kStep;
    const Bf16* const from =
        at < args.nope_dim ? kv + head * (args.nope_dim + args.v_dim) + at : turned + (at - args.nope_dim);
    if constexpr (kAligned) {
      *reinterpret_cast<uint4*>(k + head * head_dim + at) = *reinterpret_cast<const uint4*>(from);
    } else {
      k[head * head_dim + at].bits = from->bits;
    }
  }
}

}  // namespace

Status AssembleLatent(const AssembleLatentArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.heads <= 0) return OkStatus();
  if (args.rows >= (std::int64_t{1} << 31)) return Internal("AssembleLatent: more than 2^31 rows");
  if (args.rope_dim > kMaxRopeDim || args.rope_dim % 2 != 0)
    return Internal("AssembleLatent: more than 256 or an odd number of rotated dims");
  const bool aligned = args.nope_dim % kPack == 0 && args.rope_dim % kPack == 0 && args.v_dim % kPack == 0 &&
                       IsAligned(args.q) && IsAligned(args.kv) && IsAligned(args.k);
  if (aligned) {
    AssembleKernel<true><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
  } else {
    AssembleKernel<false><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
  }
  return CheckLaunch("AssembleLatent");
}

}  // namespace draftmill::cuda
