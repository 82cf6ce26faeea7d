#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/decoder_cuda.h"
#include "kernels/vector_cuda.h"

namespace draftmill::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
/// A thread holds two packs of its row.
constexpr std::int64_t kMaxNormCols = 2 * kPack * kMaxThreads;
constexpr std::int64_t kMaxHeadDim = 256;

unsigned RoundToWarps(std::int64_t threads) { return CeilDiv(threads, kWarp) * kWarp; }

// ---- embedding -----------------------------------------------------------------------------------------------------

template <bool kAligned>
__global__ void EmbedKernel(EmbedRowsArgs args) {
  const std::int64_t r = blockIdx.x;
  const Bf16* row = args.table + static_cast<std::int64_t>(args.ids[r]) * args.cols;
  for (std::int64_t at = threadIdx.x * kPack; at < args.cols; at += blockDim.x * kPack) {
    float values[kPack];
    LoadPack<kAligned>(row, at, args.cols, values);
#pragma unroll
    for (float& value : values) value *= args.scale;
    StorePack<kAligned>(args.out + r * args.cols, at, args.cols, values);
  }
}

// ---- integers ------------------------------------------------------------------------------------------------------

__global__ void CopyIntegersKernel(CopyIntegersArgs args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count; i += step) {
    args.to[i] = args.from[i];
  }
}

// ---- residual, norm and capture ------------------------------------------------------------------------------------

/// What one thread holds of its row: kPacks times eight values, a block's width apart.
template <int kPacks>
struct RowPart {
  float values[kPacks][kPack];

  __device__ static std::int64_t Place(int pack) {
    return (static_cast<std::int64_t>(pack) * blockDim.x + threadIdx.x) * kPack;
  }

  template <bool kAligned>
  __device__ void Load(const Bf16* row, std::int64_t cols) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Place(p) < cols) {
        LoadPack<kAligned>(row, Place(p), cols, values[p]);
      } else {
#pragma unroll
        for (float& value : values[p]) value = 0.0F;
      }
    }
  }
  template <bool kAligned>
  __device__ void Store(Bf16* row, std::int64_t cols) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Place(p) < cols) StorePack<kAligned>(row, Place(p), cols, values[p]);
    }
  }
  __device__ float InverseRms(std::int64_t cols, float epsilon, float* partial) const {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (const float value : values[p]) sum += value * value;
    }
    return rsqrtf(BlockSum(sum, partial) / static_cast<float>(cols) + epsilon);
  }
  /// values *= inverse * weight, rounded as asked for.
  template <bool kAligned>
  __device__ void Normalise(float inverse, const float* weight, const AddNormArgs& args) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Place(p) >= args.cols) continue;
      float w[kPack];
      LoadPack<kAligned>(weight, Place(p), args.cols, w);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        float value = values[p][i] * inverse;
        if (args.rounding == NormRounding::kHf) value = Rounded(value);
        values[p][i] = Rounded(value * (args.one_plus ? 1.0F + w[i] : w[i]));
      }
    }
  }
};

template <int kPacks, bool kAligned>
__global__ __launch_bounds__(kMaxThreads) void AddNormKernel(AddNormArgs args) {
  __shared__ float branch_partial[kWarp];
  __shared__ float partial[kWarp];
  const std::int64_t r = blockIdx.x;
  Bf16* residual = args.residual + r * args.residual_stride;
  RowPart<kPacks> x;
  x.template Load<kAligned>(residual, args.cols);
  if (args.branch != nullptr) {
    RowPart<kPacks> branch;
    branch.template Load<kAligned>(args.branch + r * args.cols, args.cols);
    if (args.branch_weight != nullptr) {
      const float inverse = branch.InverseRms(args.cols, args.epsilon, branch_partial);
      branch.template Normalise<kAligned>(inverse, args.branch_weight, args);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) x.values[p][i] = Rounded(x.values[p][i] + branch.values[p][i]);
    }
    x.template Store<kAligned>(residual, args.cols);
  }
  if (args.capture != nullptr) x.template Store<kAligned>(args.capture + r * args.capture_stride, args.cols);
  if (args.out == nullptr) return;
  const float inverse = x.InverseRms(args.cols, args.epsilon, partial);
  x.template Normalise<kAligned>(inverse, args.weight, args);
  x.template Store<kAligned>(args.out + r * args.cols, args.cols);
}

template <bool kAligned>
void LaunchAddNorm(const AddNormArgs& args, cudaStream_t stream) {
  const std::int64_t packs = CeilDiv(args.cols, kPack);
  const auto rows = static_cast<unsigned>(args.rows);
  if (packs <= kThreads / 2) {
    AddNormKernel<1, kAligned><<<rows, RoundToWarps(packs), 0, stream>>>(args);
  } else {
    AddNormKernel<2, kAligned><<<rows, RoundToWarps(CeilDiv(packs, 2)), 0, stream>>>(args);
  }
}

// ---- rotation ------------------------------------------------------------------------------------------------------

__device__ inline void RotatePair(float& a, float& b, float cosine, float sine) {
  const float first = Rounded(Rounded(a * cosine) - Rounded(b * sine));
  b = Rounded(Rounded(b * cosine) + Rounded(a * sine));
  a = first;
}

__device__ inline float NormalisedHeadValue(float value, float inverse, float weight, const RotateHeadsArgs& args) {
  value *= inverse;
  if (args.norm_rounding == NormRounding::kHf) value = Rounded(value);
  return Rounded(value * (args.one_plus ? 1.0F + weight : weight));
}

/// Eight pairs' worth of two tables, read once and used for many heads.
struct PairValues {
  float first[kPack];
  float second[kPack];

  __device__ void Load(const float* firsts, const float* seconds) {
    LoadPack<true>(firsts, 0, kPack, first);
    LoadPack<true>(seconds, 0, kPack, second);
  }
};

/// Halves of whole heads, sixteen bytes at a time: a thread rotates eight pairs of a head, 2^kLaneBits neighbouring
/// threads hold a head, and each goes through several heads with its cosines, sines and weights in registers.
template <int kLaneBits, bool kNorms>
__global__ void RotateHalvesKernel(RotateHeadsArgs args) {
  constexpr int kLanes = 1 << kLaneBits;
  constexpr int kHalf = kLanes * kPack;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t table = static_cast<std::int64_t>(args.positions[blockIdx.x]) * kHalf + lane * kPack;
  PairValues turn;  // cosines and sines
  turn.Load(args.cosines + table, args.sines + table);
  PairValues weights;
  bool k_weights = false;
  if constexpr (kNorms) weights.Load(args.q_norm + lane * kPack, args.q_norm + kHalf + lane * kPack);
  Bf16* const row = args.heads + static_cast<std::int64_t>(blockIdx.x) * args.row_stride + lane * kPack;
  const int q_heads = static_cast<int>(args.q_heads);
  const int heads = q_heads + static_cast<int>(args.k_heads);
  for (int head = static_cast<int>(threadIdx.x) >> kLaneBits; head < heads;
       head += static_cast<int>(blockDim.x) >> kLaneBits) {
    Bf16* const stored = row + head * 2 * kHalf;
    float a[kPack];
    float b[kPack];
    LoadPack<true>(stored, 0, kPack, a);
    LoadPack<true>(stored, kHalf, kPack, b);
    if constexpr (kNorms) {
      if (head >= q_heads && !k_weights) {
        weights.Load(args.k_norm + lane * kPack, args.k_norm + kHalf + lane * kPack);
        k_weights = true;
      }
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum += a[i] * a[i] + b[i] * b[i];
      const std::uint32_t group =
          kLanes == kWarp ? 0xffffffffU : ((1U << kLanes) - 1U) << (threadIdx.x % kWarp / kLanes * kLanes);
      const float inverse = rsqrtf(GroupSum(sum, kLanes, group) / (2 * kHalf) + args.epsilon);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        a[i] = NormalisedHeadValue(a[i], inverse, weights.first[i], args);
        b[i] = NormalisedHeadValue(b[i], inverse, weights.second[i], args);
      }
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) RotatePair(a[i], b[i], turn.first[i], turn.second[i]);
    StorePack<true>(stored, 0, kPack, a);
    StorePack<true>(stored, kHalf, kPack, b);
  }
}

template <int kLaneBits>
void LaunchHalves(const RotateHeadsArgs& args, cudaStream_t stream) {
  // Each thread goes through the same number of heads, as nearly as that can be.
  const std::int64_t items = (args.q_heads + args.k_heads) << kLaneBits;
  const unsigned threads = RoundToWarps(CeilDiv(items, CeilDiv(items, kThreads)));
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.q_norm != nullptr) {
    RotateHalvesKernel<kLaneBits, true><<<rows, threads, 0, stream>>>(args);
  } else {
    RotateHalvesKernel<kLaneBits, false><<<rows, threads, 0, stream>>>(args);
  }
}

/// Any head: a warp each, a lane holds up to kPairs pairs. Dims that are not rotated are pairs that stay.
__global__ void RotateAnyKernel(RotateHeadsArgs args) {
  constexpr int kPairs = kMaxHeadDim / 2 / kWarp;
  const std::int64_t r = blockIdx.x;
  const std::int64_t half = args.rotary_dims / 2;
  const float* cosines = args.cosines + args.positions[r] * half;
  const float* sines = args.sines + args.positions[r] * half;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = blockDim.x / kWarp;
  for (std::int64_t head = threadIdx.x / kWarp; head < args.q_heads + args.k_heads; head += warps) {
    Bf16* stored = args.heads + r * args.row_stride + head * args.head_dim;
    std::int64_t first[kPairs];
    std::int64_t second[kPairs];
    float a[kPairs];
    float b[kPairs];
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const std::int64_t pair = lane + p * kWarp;
      const bool halves = pair < half && !args.interleaved;
      first[p] = halves ? pair : 2 * pair;
      second[p] = halves ? pair + half : 2 * pair + 1;
      const bool there = 2 * pair < args.head_dim;
      a[p] = there ? Widen(stored[first[p]].bits) : 0.0F;
      b[p] = there ? Widen(stored[second[p]].bits) : 0.0F;
      sum += a[p] * a[p] + b[p] * b[p];
    }
    const float* weight = head < args.q_heads ? args.q_norm : args.k_norm;
    const float inverse = rsqrtf(GroupSum(sum, kWarp, 0xffffffffU) / static_cast<float>(args.head_dim) + args.epsilon);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const std::int64_t pair = lane + p * kWarp;
      if (2 * pair >= args.head_dim) continue;
      if (weight != nullptr) {
        a[p] = NormalisedHeadValue(a[p], inverse, weight[first[p]], args);
        b[p] = NormalisedHeadValue(b[p], inverse, weight[second[p]], args);
      }
      if (pair < half) RotatePair(a[p], b[p], cosines[pair], sines[pair]);
      stored[first[p]].bits = Narrow(a[p]);
      stored[second[p]].bits = Narrow(b[p]);
    }
  }
}

/// Whether RotateHalvesKernel takes it: whole heads in halves, both norms or none, all at 16 bytes.
bool TakesHalves(const RotateHeadsArgs& args) {
  if (args.interleaved || args.rotary_dims != args.head_dim || args.row_stride % kPack != 0) return false;
  if ((args.q_norm == nullptr) != (args.k_norm == nullptr)) return false;
  for (const void* pointer : {static_cast<const void*>(args.heads), static_cast<const void*>(args.cosines),
                              static_cast<const void*>(args.sines), static_cast<const void*>(args.q_norm),
                              static_cast<const void*>(args.k_norm)}) {
    if (!IsAligned(pointer)) return false;
  }
  return true;
}

// ---- gating --------------------------------------------------------------------------------------------------------

__device__ inline float Sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <GateKind kKind>
__device__ inline float Activate(float gate, float up, float limit) {
  if constexpr (kKind == GateKind::kSilu) {
    return Rounded(gate / (1.0F + expf(-gate))) * up;
  } else if constexpr (kKind == GateKind::kGeluTanh) {
    const float inner = 0.7978845608028654F * (gate + 0.044715F * gate * gate * gate);
    return Rounded(0.5F * gate * (1.0F + tanhf(inner))) * up;
  } else {
    const float bounded = fminf(gate, limit);
    const float glu = Rounded(bounded * Rounded(Sigmoid(Rounded(bounded * 1.702F))));
    return Rounded(fminf(fmaxf(up, -limit), limit) + 1.0F) * glu;
  }
}

template <GateKind kKind, bool kAligned>
__global__ void GateKernel(GateArgs args) {
  const std::int64_t r = blockIdx.x;
  const Bf16* gate_row = args.gate_up + r * 2 * args.width;
  for (std::int64_t at = threadIdx.x * kPack; at < args.width; at += blockDim.x * kPack) {
    float gate[kPack];
    float up[kPack];
    LoadPack<kAligned>(gate_row, at, args.width, gate);
    LoadPack<kAligned>(gate_row + args.width, at, args.width, up);
#pragma unroll
    for (int i = 0; i < kPack; ++i) gate[i] = Activate<kKind>(gate[i], up[i], args.limit);
    StorePack<kAligned>(args.out + r * args.width, at, args.width, gate);
  }
}

template <GateKind kKind>
void LaunchGate(const GateArgs& args, cudaStream_t stream) {
  const bool aligned = args.width % kPack == 0 && IsAligned(args.gate_up) && IsAligned(args.out);
  const unsigned threads = std::min<unsigned>(kThreads, RoundToWarps(CeilDiv(args.width, kPack)));
  const auto rows = static_cast<unsigned>(args.rows);
  if (aligned) {
    GateKernel<kKind, true><<<rows, threads, 0, stream>>>(args);
  } else {
    GateKernel<kKind, false><<<rows, threads, 0, stream>>>(args);
  }
}

// ---- sinks and checks ----------------------------------------------------------------------------------------------

template <bool kAligned>
__global__ void SinksKernel(SinksArgs args, std::int64_t packs) {
  const std::int64_t r = blockIdx.x;
  for (std::int64_t item = threadIdx.x; item < args.heads * packs; item += blockDim.x) {
    const std::int64_t head = item / packs;
    const std::int64_t at = item % packs * kPack;
    const float factor = Sigmoid(args.lse[head * args.rows + r] - args.sinks[head]);
    Bf16* out = args.out + (r * args.heads + head) * args.head_dim;
    float values[kPack];
    LoadPack<kAligned>(out, at, args.head_dim, values);
#pragma unroll
    for (float& value : values) value *= factor;
    StorePack<kAligned>(out, at, args.head_dim, values);
  }
}

template <bool kAligned>
__global__ void MarkNonFiniteKernel(MarkNonFiniteArgs args) {
  const std::int64_t r = blockIdx.x;
  bool bad = false;
  for (std::int64_t at = threadIdx.x * kPack; at < args.cols; at += blockDim.x * kPack) {
    float values[kPack];
    LoadPack<kAligned>(args.values + r * args.cols, at, args.cols, values);
#pragma unroll
    for (const float value : values) bad |= !isfinite(value);
  }
  if (bad) atomicExch(args.bad + args.owner[r], 1);
}

/// Grids are at most 2^31 - 1 blocks, one a row.
bool HasWork(std::int64_t rows, std::int64_t cols) { return rows > 0 && cols > 0; }
Status CheckRows(std::int64_t rows, const char* kernel) {
  return rows < (std::int64_t{1} << 31) ? OkStatus() : Internal(std::string(kernel) + ": more than 2^31 rows");
}

}  // namespace

Status EmbedRows(const EmbedRowsArgs& args, cudaStream_t stream) {
  if (!HasWork(args.rows, args.cols)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "EmbedRows"));
  const bool aligned = args.cols % kPack == 0 && IsAligned(args.table) && IsAligned(args.out);
  const unsigned threads = std::min<unsigned>(kThreads, RoundToWarps(CeilDiv(args.cols, kPack)));
  const auto rows = static_cast<unsigned>(args.rows);
  if (aligned) {
    EmbedKernel<true><<<rows, threads, 0, stream>>>(args);
  } else {
    EmbedKernel<false><<<rows, threads, 0, stream>>>(args);
  }
  return CheckLaunch("EmbedRows");
}

Status CopyIntegers(const CopyIntegersArgs& args, cudaStream_t stream) {
  if (args.count <= 0) return OkStatus();
  constexpr unsigned kMostBlocks = 256;
  CopyIntegersKernel<<<std::min(CeilDiv(args.count, kThreads), kMostBlocks), kThreads, 0, stream>>>(args);
  return CheckLaunch("CopyIntegers");
}

Status AddNorm(const AddNormArgs& given, cudaStream_t stream) {
  AddNormArgs args = given;
  if (args.residual_stride == 0) args.residual_stride = args.cols;
  if (!HasWork(args.rows, args.cols)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "AddNorm"));
  if (args.cols > kMaxNormCols) return Internal("AddNorm: rows of more than 16,384 values");
  bool aligned = args.cols % kPack == 0 && args.capture_stride % kPack == 0 && args.residual_stride % kPack == 0;
  for (const void* pointer : {static_cast<const void*>(args.residual), static_cast<const void*>(args.branch),
                              static_cast<const void*>(args.branch_weight), static_cast<const void*>(args.weight),
                              static_cast<const void*>(args.out), static_cast<const void*>(args.capture)}) {
    aligned = aligned && IsAligned(pointer);
  }
  if (aligned) {
    LaunchAddNorm<true>(args, stream);
  } else {
    LaunchAddNorm<false>(args, stream);
  }
  return CheckLaunch("AddNorm");
}

Status RotateHeads(const RotateHeadsArgs& args, cudaStream_t stream) {
  if (!HasWork(args.rows, args.q_heads + args.k_heads)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "RotateHeads"));
  if (args.head_dim > kMaxHeadDim || args.head_dim % 2 != 0 || args.rotary_dims > args.head_dim) {
    return Internal("RotateHeads: heads of more than 256 or an odd number of dims");
  }
  switch (TakesHalves(args) ? args.head_dim : 0) {
    case 32: LaunchHalves<1>(args, stream); break;
    case 64: LaunchHalves<2>(args, stream); break;
    case 128: LaunchHalves<3>(args, stream); break;
    case 256: LaunchHalves<4>(args, stream); break;
    default: RotateAnyKernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
  }
  return CheckLaunch("RotateHeads");
}

Status Gate(const GateArgs& args, cudaStream_t stream) {
  if (!HasWork(args.rows, args.width)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "Gate"));
  switch (args.kind) {
    case GateKind::kSilu: LaunchGate<GateKind::kSilu>(args, stream); break;
    case GateKind::kGeluTanh: LaunchGate<GateKind::kGeluTanh>(args, stream); break;
    case GateKind::kClampedSwiglu: LaunchGate<GateKind::kClampedSwiglu>(args, stream); break;
  }
  return CheckLaunch("Gate");
}

Status ApplySinks(const SinksArgs& args, cudaStream_t stream) {
  if (!HasWork(args.rows, args.heads * args.head_dim)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "ApplySinks"));
  const auto rows = static_cast<unsigned>(args.rows);
  const std::int64_t packs = CeilDiv(args.head_dim, kPack);
  if (args.head_dim % kPack == 0 && IsAligned(args.out)) {
    SinksKernel<true><<<rows, kThreads, 0, stream>>>(args, packs);
  } else {
    SinksKernel<false><<<rows, kThreads, 0, stream>>>(args, packs);
  }
  return CheckLaunch("ApplySinks");
}

Status MarkNonFinite(const MarkNonFiniteArgs& args, cudaStream_t stream) {
  if (!HasWork(args.rows, args.cols)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckRows(args.rows, "MarkNonFinite"));
  const unsigned threads = std::min<unsigned>(kThreads, RoundToWarps(CeilDiv(args.cols, kPack)));
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.cols % kPack == 0 && IsAligned(args.values)) {
    MarkNonFiniteKernel<true><<<rows, threads, 0, stream>>>(args);
  } else {
    MarkNonFiniteKernel<false><<<rows, threads, 0, stream>>>(args);
  }
  return CheckLaunch("MarkNonFinite");
}

}  // namespace draftmill::cuda
