#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/experts_cuda.h"
#include "kernels/vector_cuda.h"

namespace draftmill::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::uint32_t kAllLanes = 0xffffffffU;
/// Rows whose choices one block of threads sorts, and the words that hold a bit for each.
constexpr int kTileRows = 128;
constexpr int kTileWords = kTileRows / 32;

// ---- router --------------------------------------------------------------------------------------------------------

/// Grows with the value; equal for both zeros; 0 for NaN alone.
__device__ inline std::uint32_t OrderOf(float value) {
  if (value != value) return 0;
  const std::uint32_t bits = __float_as_uint(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ inline float WarpMaximum(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Marks the `top` largest of `count` values in `marks`, the lower index among equals; NaN comes after all numbers.
__device__ void MarkTop(const float* values, int count, int top, std::uint8_t* marks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = lane; i < count; i += kWarp) marks[i] = 0;
  __syncwarp();
  for (int k = 0; k < top; ++k) {
    std::uint32_t best = 0;
    int index = count;
    for (int i = lane; i < count; i += kWarp) {
      const std::uint32_t order = OrderOf(values[i]);
      if (marks[i] == 0 && (index == count || order > best)) {
        best = order;
        index = i;
      }
    }
    const std::uint32_t largest = __reduce_max_sync(kAllLanes, index == count ? 0U : best);
    const bool candidate = index < count && best == largest;
    const int winner = static_cast<int>(
        __reduce_min_sync(kAllLanes, candidate ? static_cast<unsigned>(index) : static_cast<unsigned>(count)));
    if (lane == 0 && winner < count) marks[winner] = 1;
    __syncwarp();
  }
}

/// Indices of the marked, ascending.
__device__ void ListMarked(const std::uint8_t* marks, int count, std::int32_t* list) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int found = 0;
  for (int first = 0; first < count; first += kWarp) {
    const bool marked = first + lane < count && marks[first + lane] != 0;
    const std::uint32_t all = __ballot_sync(kAllLanes, marked);
    if (marked) list[found + __popc(all & ((1U << lane) - 1U))] = first + lane;
    found += __popc(all);
  }
  __syncwarp();
}

/// Softmax in place over values that a warp holds in shared memory.
__device__ void Softmax(float* values, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float largest = -INFINITY;
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, values[i]);
  largest = WarpMaximum(largest);
  float sum = 0;
  for (int i = lane; i < count; i += kWarp) {
    values[i] = expf(values[i] - largest);
    sum += values[i];
  }
  sum = GroupSum(sum, kWarp, kAllLanes);
  for (int i = lane; i < count; i += kWarp) values[i] /= sum;
  __syncwarp();
}

/// What a warp keeps of its row.
struct RowScratch {
  float* scores;        ///< [experts]: what the chosen weigh
  float* choice;        ///< [experts]: what is chosen by
  std::uint8_t* marks;  ///< [experts]
};

__host__ __device__ constexpr int ScratchBytes(int experts) { return (2 * 4 + 1) * ((experts + 3) / 4 * 4); }

/// Experts outside the best groups can no longer be chosen. A group's score is the sum of its two best.
__device__ void DropGroups(const RouteRowsArgs& args, const RowScratch& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int groups = static_cast<int>(args.groups);
  const int size = static_cast<int>(args.experts) / groups;
  // The groups' scores and marks stand in `scores`' and `marks`' place for a moment: there are at most half as many.
  float* const group_scores = row.scores;
  for (int g = lane; g < groups; g += kWarp) {
    const float* values = row.choice + g * size;
    float first = values[0];
    float second = -INFINITY;
    for (int i = 1; i < size; ++i) {
      second = values[i] > first ? first : fmaxf(second, values[i]);
      first = fmaxf(first, values[i]);
    }
    group_scores[g] = first + second;
  }
  __syncwarp();
  MarkTop(group_scores, groups, static_cast<int>(args.groups_kept), row.marks);
  for (int e = lane; e < static_cast<int>(args.experts); e += kWarp) {
    if (row.marks[e / size] == 0) row.choice[e] = -INFINITY;
  }
  __syncwarp();
}

__device__ inline float SigmoidOf(float x) { return 1.0F / (1.0F + expf(-x)); }

__device__ void LoadLogits(const RouteRowsArgs& args, std::int64_t r, const RowScratch& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* logits = args.logits + r * args.parts * args.experts;
  for (int e = lane; e < static_cast<int>(args.experts); e += kWarp) {
    float logit = 0;
    for (std::int64_t p = args.parts - 1; p >= 0; --p) logit += logits[p * args.experts + e];  // the smallest first
    if (args.logit_bias != nullptr) logit += args.logit_bias[e];
    row.choice[e] = logit;
  }
  __syncwarp();
}

/// Turns the logits in `choice` into what is chosen by, and lists the chosen.
__device__ void Choose(const RouteRowsArgs& args, const RowScratch& row, std::int32_t* chosen) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int experts = static_cast<int>(args.experts);
  const bool biased = args.kind == RouterKind::kSigmoidBiased;
  if (biased) {
    for (int e = lane; e < experts; e += kWarp) {
      row.choice[e] = SigmoidOf(row.choice[e]) + (args.choice_bias == nullptr ? 0.0F : args.choice_bias[e]);
    }
    __syncwarp();
    if (args.groups > 1) DropGroups(args, row);
  }
  MarkTop(row.choice, experts, static_cast<int>(args.top_k), row.marks);
  ListMarked(row.marks, experts, chosen);
}

/// What all experts would weigh, in `scores`.
__device__ void Score(const RouteRowsArgs& args, std::int64_t r, const RowScratch& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int experts = static_cast<int>(args.experts);
  LoadLogits(args, r, row);  // again: the choice wrote over them
  for (int e = lane; e < experts; e += kWarp) {
    const float logit = row.choice[e];
    row.scores[e] = args.kind == RouterKind::kSigmoidBiased ? SigmoidOf(logit) : args.rounds ? Rounded(logit) : logit;
  }
  __syncwarp();
  if (args.kind == RouterKind::kSoftmax) Softmax(row.scores, experts);
}

__device__ void Weigh(const RouteRowsArgs& args, const RowScratch& row, const std::int32_t* chosen, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int top_k = static_cast<int>(args.top_k);
  float* const kept = row.choice;  // no longer needed
  for (int k = lane; k < top_k; k += kWarp) kept[k] = row.scores[chosen[k]];
  __syncwarp();
  if (args.kind == RouterKind::kSoftmaxChosen) Softmax(kept, top_k);
  // DeepSeek's rule keeps a sum of nothing from dividing by zero; softmax weights are never all zero.
  float sum = args.kind == RouterKind::kSigmoidBiased ? 1e-20F : 0.0F;
  for (int k = 0; k < top_k; ++k) sum += kept[k];
  for (int k = lane; k < top_k; k += kWarp) {
    const float weight = (args.renormalise ? kept[k] / sum : kept[k]) * args.scaling;
    weights[k] = args.rounds ? Rounded(weight) : weight;
  }
}

/// A warp a row.
__global__ void RouteKernel(RouteRowsArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kWarp) + warp;
  if (r >= args.rows) return;
  const int padded = (static_cast<int>(args.experts) + 3) / 4 * 4;
  auto* const floats = reinterpret_cast<float*>(shared + warp * ScratchBytes(static_cast<int>(args.experts)));
  const RowScratch row{floats, floats + padded, reinterpret_cast<std::uint8_t*>(floats + 2 * padded)};
  std::int32_t* const chosen = args.chosen + r * args.top_k;
  LoadLogits(args, r, row);
  Choose(args, row, chosen);
  Score(args, r, row);
  Weigh(args, row, chosen, args.weights + r * args.top_k);
}

__global__ void SplitFloatsKernel(SplitFloatsArgs args) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  float rest = args.values[i];
  for (std::int64_t p = 0; p < args.part_count; ++p) {
    const float part = Rounded(rest);
    args.parts[p * args.count + i].bits = Narrow(part);
    rest -= part;
  }
}

// ---- slots ---------------------------------------------------------------------------------------------------------

/// A bit for each row of the tile and expert: [experts][kTileWords].
__device__ void MarkTile(const PlanSlotsArgs& args, std::uint32_t* bits) {
  const int words = static_cast<int>(args.experts) * kTileWords;
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) bits[i] = 0;
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTileRows * args.top_k;
  const std::int64_t end = min(first + kTileRows * args.top_k, args.rows * args.top_k);
  for (std::int64_t choice = first + threadIdx.x; choice < end; choice += blockDim.x) {
    const int row = static_cast<int>((choice - first) / args.top_k);
    atomicOr(bits + args.chosen[choice] * kTileWords + row / 32,
             1U << (row % 32));  // bits of a set: any order gives it
  }
  __syncthreads();
}

__device__ inline int RowsOf(const std::uint32_t* expert_bits) {
  int count = 0;
#pragma unroll
  for (int w = 0; w < kTileWords; ++w) count += __popc(expert_bits[w]);
  return count;
}

/// counts[tile][expert].
__global__ void CountTileKernel(PlanSlotsArgs args, std::int32_t* counts) {
  extern __shared__ std::uint32_t bits[];
  MarkTile(args, bits);
  for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += static_cast<int>(blockDim.x)) {
    counts[static_cast<std::int64_t>(blockIdx.x) * args.experts + e] = RowsOf(bits + e * kTileWords);
  }
}

/// Turns a column of counts into places within the expert, and gives its total. A warp an expert.
__global__ void ScanTilesKernel(std::int32_t* counts, std::int32_t* totals, std::int64_t tiles, std::int64_t experts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (e >= experts) return;
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < tiles; first += kWarp) {
    const bool inside = first + lane < tiles;
    const std::int32_t count = inside ? counts[(first + lane) * experts + e] : 0;
    std::int32_t sum = count;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (inside) counts[(first + lane) * experts + e] = before + sum - count;
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) totals[e] = before;
}

/// first_slot from the experts' totals: one warp.
__global__ void ScanExpertsKernel(const std::int32_t* totals, std::int32_t* first_slot, std::int64_t experts) {
  const int lane = static_cast<int>(threadIdx.x);
  std::int32_t before = 0;
  for (std::int64_t first = 0; first < experts; first += kWarp) {
    const bool inside = first + lane < experts;
    const std::int32_t count = inside ? totals[first + lane] : 0;
    std::int32_t sum = count;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (inside) first_slot[first + lane] = before + sum - count;
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) first_slot[experts] = before;
}

__global__ void PlaceTileKernel(PlanSlotsArgs args, const std::int32_t* places) {
  extern __shared__ std::uint32_t bits[];
  MarkTile(args, bits);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTileRows * args.top_k;
  const std::int64_t end = min(first + kTileRows * args.top_k, args.rows * args.top_k);
  for (std::int64_t choice = first + threadIdx.x; choice < end; choice += blockDim.x) {
    const int row = static_cast<int>((choice - first) / args.top_k);
    const std::int32_t expert = args.chosen[choice];
    const std::uint32_t* expert_bits = bits + expert * kTileWords;
    int rank = __popc(expert_bits[row / 32] & ((1U << (row % 32)) - 1U));
    for (int w = 0; w < row / 32; ++w) rank += __popc(expert_bits[w]);
    args.slots[choice] =
        args.first_slot[expert] + places[static_cast<std::int64_t>(blockIdx.x) * args.experts + expert] + rank;
  }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

/// A block a row: what it reads once it writes top_k times.
template <typename T>
__global__ void SpreadKernel(const T* in, T* out, std::int64_t cols, SpreadRowsArgs args) {
  const std::int32_t* slots = args.slots + blockIdx.x * args.top_k;
  const T* from = in + blockIdx.x * cols;
  for (std::int64_t at = threadIdx.x; at < cols; at += blockDim.x) {
    const T value = from[at];
#pragma unroll 4
    for (std::int64_t k = 0; k < args.top_k; ++k) out[static_cast<std::int64_t>(slots[k]) * cols + at] = value;
  }
}

template <bool kAligned>
__global__ void JoinKernel(JoinExpertsArgs args) {
  const std::int64_t r = blockIdx.x;
  const std::int32_t* slots = args.slots + r * args.top_k;
  const float* weights = args.weights + r * args.top_k;
  for (std::int64_t at = threadIdx.x * kPack; at < args.cols; at += blockDim.x * kPack) {
    float sums[kPack] = {};
#pragma unroll 4
    for (std::int64_t k = 0; k < args.top_k; ++k) {
      float values[kPack];
      LoadPack<kAligned>(args.expert_rows + static_cast<std::int64_t>(slots[k]) * args.cols, at, args.cols, values);
      const float weight = weights[k];
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        // Not one fused operation: the rounding of the term is the published model's.
        const float term = __fmul_rn(values[i], weight);
        sums[i] = __fadd_rn(sums[i], args.rounds_terms ? Rounded(term) : term);
      }
    }
    if (args.shared != nullptr) {
      float shared[kPack];
      LoadPack<kAligned>(args.shared + r * args.cols, at, args.cols, shared);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i] = Rounded(sums[i]) + shared[i];
    }
    StorePack<kAligned>(args.out + r * args.cols, at, args.cols, sums);
  }
}

bool FitsGrid(std::int64_t blocks) { return blocks < (std::int64_t{1} << 31); }
unsigned ThreadsFor(std::int64_t cols) {
  return std::min<unsigned>(kThreads, CeilDiv(CeilDiv(cols, kPack), kWarp) * kWarp);
}
Status CheckExperts(std::int64_t experts, const char* kernel) {
  return experts <= kMostExperts ? OkStatus() : Internal(std::string(kernel) + ": more than 2,048 experts");
}

}  // namespace

Status SplitFloats(const SplitFloatsArgs& args, cudaStream_t stream) {
  if (args.count <= 0) return OkStatus();
  if (!FitsGrid(CeilDiv(args.count, kThreads))) return Internal("SplitFloats: too many values");
  SplitFloatsKernel<<<CeilDiv(args.count, kThreads), kThreads, 0, stream>>>(args);
  return CheckLaunch("SplitFloats");
}

Status RouteRows(const RouteRowsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckExperts(args.experts, "RouteRows"));
  constexpr int kSharedBytes = 48 * 1024;  // what every launch may have
  const int bytes = ScratchBytes(static_cast<int>(args.experts));
  const int warps = std::clamp(kSharedBytes / bytes, 1, kThreads / kWarp);
  RouteKernel<<<CeilDiv(args.rows, warps), static_cast<unsigned>(warps * kWarp),
                static_cast<std::size_t>(warps * bytes), stream>>>(args);
  return CheckLaunch("RouteRows");
}

std::int64_t PlanSlotsScratch(std::int64_t rows, std::int64_t experts) {
  return (static_cast<std::int64_t>(CeilDiv(rows, kTileRows)) + 1) * experts;
}

Status PlanSlots(const PlanSlotsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(CheckExperts(args.experts, "PlanSlots"));
  if (args.rows * args.top_k >= (std::int64_t{1} << 31)) return Internal("PlanSlots: more than 2^31 choices");
  const std::int64_t tiles = CeilDiv(args.rows, kTileRows);
  std::int32_t* const places = args.scratch;
  std::int32_t* const totals = args.scratch + tiles * args.experts;
  const auto grid = static_cast<unsigned>(tiles);
  const std::size_t bytes = static_cast<std::size_t>(args.experts) * kTileWords * sizeof(std::uint32_t);
  CountTileKernel<<<grid, kThreads, bytes, stream>>>(args, places);
  DRAFTMILL_RETURN_IF_ERROR(CheckLaunch("CountTile"));
  ScanTilesKernel<<<CeilDiv(args.experts, kThreads / kWarp), kThreads, 0, stream>>>(places, totals, tiles,
                                                                                    args.experts);
  DRAFTMILL_RETURN_IF_ERROR(CheckLaunch("ScanTiles"));
  ScanExpertsKernel<<<1, kWarp, 0, stream>>>(totals, args.first_slot, args.experts);
  DRAFTMILL_RETURN_IF_ERROR(CheckLaunch("ScanExperts"));
  PlaceTileKernel<<<grid, kThreads, bytes, stream>>>(args, places);
  return CheckLaunch("PlaceTile");
}

Status SpreadRows(const SpreadRowsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return OkStatus();
  if (!FitsGrid(args.rows)) return Internal("SpreadRows: more than 2^31 rows");
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.cols % kPack == 0 && IsAligned(args.in) && IsAligned(args.out)) {
    SpreadKernel<<<rows, ThreadsFor(args.cols), 0, stream>>>(
        reinterpret_cast<const uint4*>(args.in), reinterpret_cast<uint4*>(args.out), args.cols / kPack, args);
  } else {
    SpreadKernel<<<rows, ThreadsFor(args.cols), 0, stream>>>(args.in, args.out, args.cols, args);
  }
  return CheckLaunch("SpreadRows");
}

Status JoinExperts(const JoinExpertsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return OkStatus();
  if (!FitsGrid(args.rows)) return Internal("JoinExperts: more than 2^31 rows");
  const auto rows = static_cast<unsigned>(args.rows);
  const bool aligned =
      args.cols % kPack == 0 && IsAligned(args.expert_rows) && IsAligned(args.out) && IsAligned(args.shared);
  if (aligned) {
    JoinKernel<true><<<rows, ThreadsFor(args.cols), 0, stream>>>(args);
  } else {
    JoinKernel<false><<<rows, ThreadsFor(args.cols), 0, stream>>>(args);
  }
  return CheckLaunch("JoinExperts");
}

}  // namespace draftmill::cuda
