// The values of expand_cuda.cu from tables of the formats, in plain loops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/expand_cuda.h"
#include "kernels/small_floats.h"

namespace draftmill::cuda::reference {
namespace {

/// IEEE half precision.
float HalfToFloat(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const auto mantissa = static_cast<float>(half & 0x3ff);
  float magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0F + mantissa, exponent - 25);
  if (exponent == 0x1f)
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The nearest half, ties to even.
float RoundToHalf(float value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const float step = std::ldexp(1.0F, std::max(exponent - 11, -24));  // eleven bits, fewer for the smallest
  const float rounded = std::nearbyint(value / step) * step;
  return std::abs(rounded) > 65504.0F ? std::copysign(std::numeric_limits<float>::infinity(), value) : rounded;
}

float Code(const ExpandMatrixArgs& args, const std::byte* row, std::int64_t column) {
  if (args.kind == ExpandKind::kFp8) return ValueOfE4m3(std::to_integer<std::uint32_t>(row[column]));
  const auto nibble = (std::to_integer<std::uint32_t>(row[column / 2]) >> (4 * (column % 2))) & 0xfU;
  return args.kind == ExpandKind::kMxfp4 ? kE2m1Values[nibble] : static_cast<float>(nibble) - 8.0F;
}

float Scale(const ExpandMatrixArgs& args, const std::byte* scales, std::int64_t index) {
  switch (args.kind) {
    case ExpandKind::kFp8:
    case ExpandKind::kInt4Float: {
      float scale = 0;
      std::memcpy(&scale, scales + index * 4, sizeof scale);
      return scale;
    }
    case ExpandKind::kInt4: {
      Bf16 scale;
      std::memcpy(&scale, scales + index * 2, sizeof scale);
      return ToFloat(scale);
    }
    case ExpandKind::kInt4Half: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, scales + index * 2, sizeof bits);
      return HalfToFloat(bits);
    }
    case ExpandKind::kMxfp4: return std::ldexp(1.0F, std::to_integer<int>(scales[index]) - 127);
  }
  return 0;
}

}  // namespace

void ExpandMatrix(const ExpandMatrixArgs& args) {
  const std::int64_t stack_scale_rows = (args.stack_rows + args.block_rows - 1) / args.block_rows;
  for (std::int64_t matrix = 0; matrix < args.matrices; ++matrix) {
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const std::byte* const row = args.values + matrix * args.matrix_bytes + r * args.row_bytes;
      const std::int64_t scale_row = r / args.stack_rows * stack_scale_rows + r % args.stack_rows / args.block_rows;
      for (std::int64_t c = 0; c < args.columns; ++c) {
        const float scale = Scale(args, args.scales + matrix * args.matrix_bytes,
                                  scale_row * args.scale_columns + c / args.block_columns);
        const float value = Code(args, row, c) * scale;
        args.out[matrix * args.out_distance + r * args.columns + c] =
            ToBf16(args.kind == ExpandKind::kInt4Half ? RoundToHalf(value) : value);
      }
    }
  }
}

}  // namespace draftmill::cuda::reference
