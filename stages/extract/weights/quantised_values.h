// Values of quantised matrices, exact to the bit: what each format defines, rounded as the formats' own packages do, which is
// once to bfloat16 unless int4's scales are of another type, and widened where W is float. Sources: DeepSeek-V3 inference/kernel.py (block FP8), compressed-tensors
// pack_quantized (int4), OCP MX 1.0 and transformers' mxfp4 integration.
//
// Each function expands a stretch of one row: `count` elements from column `column` on. Scales are those of the whole row.
// Pure functions; safe from any thread. W is Bf16 or float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bfloat16.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// One e4m3 value (OCP FP8: no infinity, 0x7f and 0xff are NaN).
float E4m3ToFloat(std::uint8_t bits);
/// IEEE half precision.
float HalfToFloat(std::uint16_t bits);
/// The nearest half precision value, to even at ties; infinite from 65,520 on.
float RoundToHalf(float value);

/// values: a byte an element, from `column` on. Element = e4m3 * scales[column / block].
template <typename W>
void ExpandFp8(const std::byte* values, const float* scales, std::int64_t block, std::int64_t column,
               std::int64_t count, W* out);

/// values: two elements a byte, low nibble first, from the even `column` on. Element = (nibble - 8) * scales[column / group],
/// rounded to the scales' type, which is how compressed-tensors multiplies, then to W.
template <typename W>
void ExpandInt4(const std::byte* values, const std::byte* scales, ScaleType type, std::int64_t group,
                std::int64_t column, std::int64_t count, W* out);

/// values: two elements a byte, low nibble first, from the even `column` on. Element = e2m1 * 2^(scales[column / group] - 127).
template <typename W>
void ExpandMxfp4(const std::byte* values, const std::uint8_t* scales, std::int64_t group, std::int64_t column,
                 std::int64_t count, W* out);

}  // namespace draftmill
