#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/expand_cuda.h"
#include "kernels/vector_cuda.h"

namespace draftmill::cuda {
namespace {

constexpr int kThreads = 256;

/// The value of a code: its bits stand where those of a float do, but for the bias of the exponent.
template <ExpandKind kKind>
__device__ inline float CodeValue(std::uint32_t code) {
  if constexpr (kKind == ExpandKind::kFp8) {
    const float magnitude = __uint_as_float((code & 0x7fU) << 20) * 0x1p120F;
    const float value = (code & 0x80U) != 0 ? -magnitude : magnitude;
    return (code & 0x7fU) == 0x7fU ? __uint_as_float(0x7fc00000U) : value;
  } else if constexpr (kKind != ExpandKind::kMxfp4) {
    return static_cast<float>(static_cast<int>(code) - 8);
  } else {
    const float magnitude = __uint_as_float((code & 0x7U) << 22) * 0x1p126F;
    return (code & 0x8U) != 0 ? -magnitude : magnitude;
  }
}

template <ExpandKind kKind>
__device__ inline float ScaleAt(const std::byte* scales, std::int64_t index) {
  if constexpr (kKind == ExpandKind::kFp8 || kKind == ExpandKind::kInt4Float) {
    return reinterpret_cast<const float*>(scales)[index];
  } else if constexpr (kKind == ExpandKind::kInt4Half) {
    return __half2float(reinterpret_cast<const __half*>(scales)[index]);
  } else if constexpr (kKind == ExpandKind::kInt4) {
    return Widen(reinterpret_cast<const Bf16*>(scales)[index].bits);
  } else {
    const auto exponent = static_cast<std::uint32_t>(scales[index]);
    return __uint_as_float(exponent == 0 ? 0x00400000U : exponent << 23);  // 2^-127 has no exponent of its own
  }
}

/// The codes of eight elements from an even column on: bytes of FP8 in order, or nibbles.
template <ExpandKind kKind, bool kAligned>
__device__ inline void LoadCodes(const std::byte* row, std::int64_t column, std::int64_t columns,
                                 std::uint32_t (&codes)[kPack]) {
  if constexpr (kKind == ExpandKind::kFp8) {
    if constexpr (kAligned) {
      const uint2 bytes = *reinterpret_cast<const uint2*>(row + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        codes[i] = (bytes.x >> (8 * i)) & 0xffU;
        codes[i + 4] = (bytes.y >> (8 * i)) & 0xffU;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        codes[i] = column + i < columns ? static_cast<std::uint32_t>(row[column + i]) : 0U;
    }
  } else {
    if constexpr (kAligned) {
      const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(row + column / 2);
#pragma unroll
      for (int i = 0; i < kPack; ++i) codes[i] = (word >> (4 * i)) & 0xfU;
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        codes[i] =
            column + i < columns ? (static_cast<std::uint32_t>(row[(column + i) / 2]) >> (4 * (i % 2))) & 0xfU : 0U;
      }
    }
  }
}

template <ExpandKind kKind>
__device__ constexpr int ScaleBytes() {
  if constexpr (kKind == ExpandKind::kFp8 || kKind == ExpandKind::kInt4Float) return 4;
  return kKind == ExpandKind::kMxfp4 ? 1 : 2;
}

/// A block of threads a row. With kAligned eight elements share one scale and everything begins at its own width.
template <ExpandKind kKind, bool kAligned>
__global__ void ExpandKernel(ExpandMatrixArgs args) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t matrix = blockIdx.y;
  const std::int64_t stack_scale_rows = (args.stack_rows + args.block_rows - 1) / args.block_rows;
  const std::int64_t scale_row = r / args.stack_rows * stack_scale_rows + r % args.stack_rows / args.block_rows;
  const std::byte* const values = args.values + matrix * args.matrix_bytes + r * args.row_bytes;
  const std::byte* const scales =
      args.scales + matrix * args.matrix_bytes + scale_row * args.scale_columns * ScaleBytes<kKind>();
  Bf16* const out = args.out + matrix * args.out_distance + r * args.columns;
  const auto columns = static_cast<std::uint32_t>(args.columns);
  const auto block = static_cast<std::uint32_t>(args.block_columns);
  for (std::uint32_t at = threadIdx.x * kPack; at < columns; at += blockDim.x * kPack) {
    std::uint32_t codes[kPack];
    LoadCodes<kKind, kAligned>(values, at, columns, codes);
    float elements[kPack];
    float scale = ScaleAt<kKind>(scales, at / block);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if constexpr (!kAligned) {
        if (at + i < columns) scale = ScaleAt<kKind>(scales, (at + i) / block);
      }
      elements[i] = CodeValue<kKind>(codes[i]) * scale;
      if constexpr (kKind == ExpandKind::kInt4Half) elements[i] = __half2float(__float2half_rn(elements[i]));
    }
    StorePack<kAligned>(out, at, columns, elements);
  }
}

bool IsMultiple(const void* pointer, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) == 0;
}

template <ExpandKind kKind>
void Launch(const ExpandMatrixArgs& args, cudaStream_t stream) {
  constexpr std::int64_t kPackBytes = kKind == ExpandKind::kFp8 ? 8 : 4;
  const bool aligned = args.columns % kPack == 0 && args.block_columns % kPack == 0 &&
                       args.row_bytes % kPackBytes == 0 && args.matrix_bytes % kPackBytes == 0 &&
                       args.out_distance % kPack == 0 && IsAligned(args.out) && IsMultiple(args.values, kPackBytes);
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.matrices));
  const unsigned threads = std::min<unsigned>(kThreads, CeilDiv(CeilDiv(args.columns, kPack), kWarp) * kWarp);
  if (aligned) {
    ExpandKernel<kKind, true><<<grid, threads, 0, stream>>>(args);
  } else {
    ExpandKernel<kKind, false><<<grid, threads, 0, stream>>>(args);
  }
}

}  // namespace

Status ExpandMatrix(const ExpandMatrixArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.columns <= 0 || args.matrices <= 0) return OkStatus();
  constexpr std::int64_t kMostMatrices = 65535;
  if (args.rows >= (std::int64_t{1} << 31) || args.columns >= (std::int64_t{1} << 31) ||
      args.matrices > kMostMatrices) {
    return Internal("ExpandMatrix: a matrix beyond the grid");
  }
  switch (args.kind) {
    case ExpandKind::kFp8: Launch<ExpandKind::kFp8>(args, stream); break;
    case ExpandKind::kInt4: Launch<ExpandKind::kInt4>(args, stream); break;
    case ExpandKind::kInt4Half: Launch<ExpandKind::kInt4Half>(args, stream); break;
    case ExpandKind::kInt4Float: Launch<ExpandKind::kInt4Float>(args, stream); break;
    case ExpandKind::kMxfp4: Launch<ExpandKind::kMxfp4>(args, stream); break;
  }
  return CheckLaunch("ExpandMatrix");
}

}  // namespace draftmill::cuda
