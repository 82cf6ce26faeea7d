// The post-norm states of a model from its pre-norm ones, by the norm that the run kept (docs/formats.md, "Final norm").
//
// For one row x of H bfloat16 values: v = the mean of x_i^2, summed in float64 and rounded to float32; r = 1 / sqrt(v +
// epsilon) in float32; y_i = x_i * r in float32; w_i the weight rounded to bfloat16, for Gemma's kind plus one in float32.
// The result is bf16(bf16(y_i) * w_i) with the rounding `hf` (transformers' LlamaRMSNorm and its like) and bf16(y_i * w_i)
// with `fused`. transformers sums the squares in float32, in an order that depends on the machine: its own result may
// differ in the last bit of few values.
//
// Immutable after it was made: safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/final_norm.h"

namespace draftmill {

class PostNorm {
 public:
  explicit PostNorm(const FinalNorm& norm);

  /// Rows of H values each, as bf16 bits, in place.
  void Apply(std::span<std::uint16_t> rows) const;

 private:
  std::vector<float> factor_;  ///< what a normalised value is multiplied with
  float epsilon_;
  bool rounds_before_weight_;
};

}  // namespace draftmill
