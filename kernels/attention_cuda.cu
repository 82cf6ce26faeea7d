#include <algorithm>
#include <limits>

#include "kernels/attention_cuda.h"
#include "kernels/cuda_check.h"
#include "kernels/vector_cuda.h"

namespace draftmill::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
/// Queries of a warp: the rows of one tensor core operand.
constexpr int kWarpQueries = 16;
constexpr int kQueries = kWarps * kWarpQueries;
constexpr float kLog2E = 1.4426950408889634F;
constexpr std::uint32_t kAllLanes = 0xffffffffU;
constexpr std::int64_t kMostGridRows = 65535;

/// What one instance of the kernel is made for.
template <int kDimsOfHead, int kDimsOfValue, int kKeysOfBlock, bool kIsAligned>
struct Shape {
  static constexpr int kDims = kDimsOfHead;
  static constexpr int kValueDims = kDimsOfValue;
  static constexpr int kKeys = kKeysOfBlock;
  static constexpr bool kAligned = kIsAligned;  ///< rows begin at 16 bytes and have whole packs
  // A pack more than needed: eight neighbouring rows then lie in different banks.
  static constexpr int kHeadStride = kDims + kPack;
  static constexpr int kValueStride = kValueDims + kPack;
  static constexpr int kSharedBytes = 2 * ((kQueries + kKeys) * kHeadStride + kKeys * kValueStride);
};

__device__ inline std::uint32_t SharedAddress(const Bf16* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices of bfloat16; lane i names row i % 8 of matrix i / 8.
__device__ inline void LoadMatrices(std::uint32_t (&out)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LoadMatricesTransposed(std::uint32_t (&out)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
/// sums [16, 8] += a [16, 16] * b [16, 8].
__device__ inline void MultiplyAdd(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b_low,
                                   std::uint32_t b_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

__device__ inline std::uint32_t PackPair(float low, float high) {
  return Narrow(low) | (static_cast<std::uint32_t>(Narrow(high)) << 16);
}

/// Begins to copy rows to shared memory; rows from `valid` on and dims from `dims` on become zeros.
template <int kRows, int kCols, int kStride, bool kAligned>
__device__ void LoadRows(Bf16* shared, const Bf16* from, std::int64_t token_stride, int valid, int dims) {
  if constexpr (kAligned) {
    constexpr int kPacks = kCols / kPack;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreads) {
      const int row = i / kPacks;
      const int col = i % kPacks * kPack;
      const bool there = row < valid && col < dims;
      const Bf16* source = there ? from + row * token_stride + col : from;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared + row * kStride + col)),
                   "l"(source), "r"(there ? 16 : 0)
                   : "memory");
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kCols; i += kThreads) {
      const int row = i / kCols;
      const int col = i % kCols;
      shared[row * kStride + col].bits =
          row < valid && col < dims ? from[row * token_stride + col].bits : std::uint16_t{0};
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the newest `kNewer` groups of copies of this thread are there.
template <int kNewer>
__device__ inline void WaitForRows() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewer) : "memory");
}

/// Where this block of threads works.
struct Place {
  std::int64_t first_token;  ///< of the sequence
  int tokens;
  int first_query;
  int head;
  int kv_head;
};

/// Two rows of each lane: lane / 4 and the eighth after it.
template <typename S>
struct Rows {
  float values[S::kValueDims / 8][4];
  float maximum[2];
  float sum[2];
};

/// Logits of a warp's queries with a block of keys.
template <typename S>
__device__ void Score(float (&scores)[S::kKeys / 8][4], const Bf16* queries, const Bf16* keys) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (auto& score : scores) score[0] = score[1] = score[2] = score[3] = 0.0F;
  const Bf16* const query = queries + (warp * kWarpQueries + lane % 16) * S::kHeadStride + lane / 16 * 8;
  const Bf16* const key = keys + (lane / 16 * 8 + lane % 8) * S::kHeadStride + lane / 8 % 2 * 8;
#pragma unroll 4
  for (int d = 0; d < S::kDims; d += 16) {
    std::uint32_t a[4];
    LoadMatrices(a, query + d);
#pragma unroll
    for (int n = 0; n < S::kKeys / 16; ++n) {
      std::uint32_t b[4];
      LoadMatrices(b, key + n * 16 * S::kHeadStride + d);
      MultiplyAdd(scores[2 * n], a, b[0], b[1]);
      MultiplyAdd(scores[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// Scales, caps and masks logits: what a query does not see becomes minus infinity.
template <typename S>
__device__ void Mask(float (&scores)[S::kKeys / 8][4], const AttendArgs& args, int first_query, int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int query_of_lane = first_query + warp * kWarpQueries + lane / 4;
  const int key_of_lane = first_key + lane % 4 * 2;
  const int window = static_cast<int>(args.window);
#pragma unroll
  for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = query_of_lane + i / 2 * 8;
      const int key = key_of_lane + n * 8 + i % 2;
      float score = scores[n][i] * args.scale;
      if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
      const bool seen = key <= query && (window == 0 || key > query - window);
      scores[n][i] = seen ? score : -INFINITY;
    }
  }
}

/// Turns logits into weights and rescales what earlier blocks gave.
template <typename S>
__device__ void Softmax(float (&scores)[S::kKeys / 8][4], Rows<S>& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = rows.maximum[half];
#pragma unroll
    for (const auto& score : scores) largest = fmaxf(largest, fmaxf(score[2 * half], score[2 * half + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float base = largest == -INFINITY ? 0.0F : largest * kLog2E;  // a row that has seen no key yet
    const float rescale = exp2f(rows.maximum[half] * kLog2E - base);
    rows.maximum[half] = largest;
    float sum = 0;
#pragma unroll
    for (auto& score : scores) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[i] = exp2f(score[i] * kLog2E - base);
        sum += score[i];
      }
    }
    rows.sum[half] = rows.sum[half] * rescale + sum;
#pragma unroll
    for (auto& value : rows.values) {
      value[2 * half] *= rescale;
      value[2 * half + 1] *= rescale;
    }
  }
}

/// rows += weights * values.
template <typename S>
__device__ void AddValues(const float (&weights)[S::kKeys / 8][4], const Bf16* values, Rows<S>& rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Bf16* const value = values + lane % 16 * S::kValueStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; ++k) {
    const std::uint32_t a[4] = {
        PackPair(weights[2 * k][0], weights[2 * k][1]), PackPair(weights[2 * k][2], weights[2 * k][3]),
        PackPair(weights[2 * k + 1][0], weights[2 * k + 1][1]), PackPair(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < S::kValueDims / 16; ++n) {
      std::uint32_t b[4];
      LoadMatricesTransposed(b, value + k * 16 * S::kValueStride + n * 16);
      MultiplyAdd(rows.values[2 * n], a, b[0], b[1]);
      MultiplyAdd(rows.values[2 * n + 1], a, b[2], b[3]);
    }
  }
}

template <typename S>
__device__ void StoreRows(const AttendArgs& args, const Place& place, const Rows<S>& rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (args.sinks != nullptr) sum += exp2f((args.sinks[place.head] - rows.maximum[half]) * kLog2E);
    const int query = place.first_query + warp * kWarpQueries + lane / 4 + half * 8;
    if (query >= place.tokens) continue;
    Bf16* const out = args.out + ((place.first_token + query) * args.heads + place.head) * args.value_dim;
#pragma unroll
    for (int n = 0; n < S::kValueDims / 8; ++n) {
      const int dim = n * 8 + lane % 4 * 2;
      const float low = rows.values[n][2 * half] / sum;
      const float high = rows.values[n][2 * half + 1] / sum;
      if constexpr (S::kAligned) {
        if (dim < args.value_dim) *reinterpret_cast<std::uint32_t*>(out + dim) = PackPair(low, high);
      } else {
        if (dim < args.value_dim) out[dim].bits = Narrow(low);
        if (dim + 1 < args.value_dim) out[dim + 1].bits = Narrow(high);
      }
    }
  }
}

/// The blocks of queries with the most keys begin first.
__device__ inline bool FindPlace(const AttendArgs& args, Place& place) {
  const std::int32_t start = args.starts[blockIdx.z];
  place.first_token = start;
  place.tokens = args.starts[blockIdx.z + 1] - start;
  const int block = (place.tokens + kQueries - 1) / kQueries - 1 - static_cast<int>(blockIdx.x);
  place.first_query = block * kQueries;
  place.head = static_cast<int>(blockIdx.y);
  place.kv_head = place.head / static_cast<int>(args.heads / args.kv_heads);
  return block >= 0;
}

template <typename S>
__global__ __launch_bounds__(kThreads) void AttendKernel(AttendArgs args) {
  extern __shared__ __align__(16) std::uint8_t shared[];
  Place place;
  if (!FindPlace(args, place)) return;
  Bf16* const queries = reinterpret_cast<Bf16*>(shared);
  Bf16* const keys = queries + kQueries * S::kHeadStride;
  Bf16* const values = keys + S::kKeys * S::kHeadStride;
  const int dims = static_cast<int>(args.head_dim);
  const int value_dims = static_cast<int>(args.value_dim);
  const Bf16* const q = args.q + (place.first_token + place.first_query) * args.q_token + place.head * args.q_head;
  const Bf16* const k = args.k + place.first_token * args.k_token + place.kv_head * args.k_head;
  const Bf16* const v = args.v + place.first_token * args.v_token + place.kv_head * args.v_head;
  const int seen = args.window > 0 ? max(0, place.first_query - static_cast<int>(args.window) + 1) : 0;
  const int end = min(place.first_query + kQueries, place.tokens);
  const auto load_keys = [&](int key) {
    LoadRows<S::kKeys, S::kDims, S::kHeadStride, S::kAligned>(keys, k + key * args.k_token, args.k_token,
                                                              place.tokens - key, dims);
  };
  const auto load_values = [&](int key) {
    LoadRows<S::kKeys, S::kValueDims, S::kValueStride, S::kAligned>(values, v + key * args.v_token, args.v_token,
                                                                    place.tokens - key, value_dims);
  };
  Rows<S> rows;
#pragma unroll
  for (auto& value : rows.values) value[0] = value[1] = value[2] = value[3] = 0.0F;
  rows.maximum[0] = rows.maximum[1] = -INFINITY;
  rows.sum[0] = rows.sum[1] = 0.0F;

  int key = seen / S::kKeys * S::kKeys;
  LoadRows<kQueries, S::kDims, S::kHeadStride, S::kAligned>(queries, q, args.q_token, place.tokens - place.first_query,
                                                            dims);
  load_keys(key);
  load_values(key);
  for (; key < end; key += S::kKeys) {
    float scores[S::kKeys / 8][4];
    WaitForRows<1>();  // the keys are there, the values may be on their way
    __syncthreads();
    Score<S>(scores, queries, keys);
    __syncthreads();
    load_keys(min(key + S::kKeys, end - 1));  // the last time for nothing, so that groups of copies count alike
    Mask<S>(scores, args, place.first_query, key);
    Softmax<S>(scores, rows);
    WaitForRows<1>();
    __syncthreads();
    AddValues<S>(scores, values, rows);
    __syncthreads();
    load_values(min(key + S::kKeys, end - 1));
  }
  WaitForRows<0>();
  StoreRows<S>(args, place, rows);
}

template <typename S>
Status Launch(const AttendArgs& args, cudaStream_t stream) {
  if constexpr (S::kSharedBytes > 48 * 1024) {
    DRAFTMILL_RETURN_IF_ERROR(
        Check(cudaFuncSetAttribute(AttendKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes),
              "shared memory of attention"));
  }
  const dim3 grid(CeilDiv(args.longest, kQueries), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.sequences));
  AttendKernel<S><<<grid, kThreads, S::kSharedBytes, stream>>>(args);
  return CheckLaunch("Attend");
}

template <bool kAligned>
Status LaunchFor(const AttendArgs& args, cudaStream_t stream) {
  const std::int64_t widest = std::max(args.head_dim, args.value_dim);
  if (widest <= 64) return Launch<Shape<64, 64, 64, kAligned>>(args, stream);
  if (widest <= 128) return Launch<Shape<128, 128, 64, kAligned>>(args, stream);
  if (args.head_dim <= 192 && args.value_dim <= 128) return Launch<Shape<192, 128, 64, kAligned>>(args, stream);
  return Launch<Shape<256, 256, 32, kAligned>>(args, stream);
}

bool HasWholePacks(const AttendArgs& args) {
  for (const std::int64_t count : {args.q_token, args.q_head, args.k_token, args.k_head, args.v_token, args.v_head,
                                   args.head_dim, args.value_dim}) {
    if (count % kPack != 0) return false;
  }
  return IsAligned(args.q) && IsAligned(args.k) && IsAligned(args.v) && IsAligned(args.out);
}

}  // namespace

Status Attend(const AttendArgs& args, cudaStream_t stream) {
  if (args.sequences <= 0 || args.longest <= 0) return OkStatus();
  if (args.head_dim > kMostAttentionDims || args.value_dim > kMostAttentionDims)
    return Internal("Attend: heads of more than 256 dims");
  if (args.sequences > kMostGridRows || args.heads > kMostGridRows)
    return Internal("Attend: more than 65,535 sequences or heads");
  if (args.longest >= std::numeric_limits<std::int32_t>::max() / 2)
    return Internal("Attend: a sequence beyond 2^30 tokens");
  AttendArgs bounded = args;
  if (args.window >= args.longest) bounded.window = 0;  // it cuts nothing off
  return HasWholePacks(args) ? LaunchFor<true>(bounded, stream) : LaunchFor<false>(bounded, stream);
}

}  // namespace draftmill::cuda
