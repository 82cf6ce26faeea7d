#include "exports/post_norm.h"

#include <cmath>

#include "kernels/bfloat16.h"

namespace draftmill {
namespace {

float InverseRms(std::span<const std::uint16_t> row, float epsilon) {
  double sum = 0;
  for (const std::uint16_t bits : row) {
    const double value = ToFloat(Bf16{bits});
    sum += value * value;
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(row.size()));
  return 1.0F / std::sqrt(mean + epsilon);
}

}  // namespace

PostNorm::PostNorm(const FinalNorm& norm)
    : epsilon_(static_cast<float>(norm.epsilon)), rounds_before_weight_(norm.rounding == "hf") {
  factor_.reserve(norm.weight.size());
  for (const float weight : norm.weight) factor_.push_back(RoundToBf16(weight) + (norm.adds_one ? 1.0F : 0.0F));
}

void PostNorm::Apply(std::span<std::uint16_t> rows) const {
  const std::size_t width = factor_.size();
  for (std::size_t first = 0; first + width <= rows.size(); first += width) {
    const std::span<std::uint16_t> row = rows.subspan(first, width);
    const float inverse = InverseRms(row, epsilon_);
    for (std::size_t i = 0; i < width; ++i) {
      const float normalised = ToFloat(Bf16{row[i]}) * inverse;
      row[i] = ToBf16((rounds_before_weight_ ? RoundToBf16(normalised) : normalised) * factor_[i]).bits;
    }
  }
}

}  // namespace draftmill
