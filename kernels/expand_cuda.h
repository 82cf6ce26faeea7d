// Expansion of quantised matrices on a GPU: block FP8, int4 in groups, MXFP4 to bfloat16, exact to the bit.
//
//   DRAFTMILL_RETURN_IF_ERROR(cuda::ExpandMatrix({.kind = ExpandKind::kInt4, .values = ..., .scales = ..., ...},
//   stream));
//
// The value that a format defines, in float32, rounded once: the same bits as stages/extract/weights/quantised_values.h. Bound
// by memory: what is written is four times as much as what is read. Queued, does not wait; a launch that the driver
// refuses is kDevice. `reference` is the same in plain loops on host memory. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/bfloat16.h"

using cudaStream_t = struct CUstream_st*;

namespace draftmill::cuda {

enum class ExpandKind : std::uint8_t {
  kFp8,        ///< a byte an element, e4m3; scales float32
  kInt4,       ///< two elements a byte, low nibble first, nibble - 8; scales bfloat16
  kInt4Half,   ///< the same with scales of half precision, to which the product is rounded first
  kInt4Float,  ///< the same with scales of float32
  kMxfp4,      ///< two elements a byte, low nibble first, e2m1; scales are exponents + 127, a byte each
};

/// One matrix, or several of one shape at equal distances. Element [r][c] = code * scale of (r, c)'s block.
struct ExpandMatrixArgs {
  ExpandKind kind = ExpandKind::kFp8;
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  Bf16* out = nullptr;  ///< [matrices][rows, columns]
  std::int64_t matrices = 1;
  std::int64_t matrix_bytes = 0;  ///< from one matrix' values, and scales, to the next one's
  std::int64_t out_distance = 0;  ///< from one matrix' elements to the next one's
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_bytes = 0;      ///< of values
  std::int64_t stack_rows = 0;     ///< rows after which blocks of scales begin anew; `rows` where there is one matrix
  std::int64_t block_rows = 1;     ///< rows that share scales
  std::int64_t block_columns = 1;  ///< columns that share a scale
  std::int64_t scale_columns = 0;  ///< scales of a row
};

Status ExpandMatrix(const ExpandMatrixArgs& args, cudaStream_t stream);

namespace reference {
void ExpandMatrix(const ExpandMatrixArgs& args);
}

}  // namespace draftmill::cuda
