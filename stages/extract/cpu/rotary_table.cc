#include "stages/extract/cpu/rotary_table.h"

#include <cmath>

#include "kernels/bfloat16.h"

namespace draftmill {

RotaryTable::RotaryTable(const RopeConfig& rope, bool rounds)
    : frequencies_(PublishedFrequencies(rope)),
      long_frequencies_(rope.type == RopeType::kLongRope ? PublishedFrequencies(rope, true) : frequencies_),
      factor_(static_cast<float>(rope.cos_sin_factor)),
      rounds_(rounds),
      short_rows_(rope.type == RopeType::kLongRope ? rope.original_max_positions : 0) {}

void RotaryTable::Append(const std::vector<float>& frequencies, std::int64_t position) {
  // Angles are products of float32 numbers, as in transformers: at large positions their rounding is seen.
  for (const float frequency : frequencies) {
    const float angle = static_cast<float>(position) * frequency;
    const float cosine = std::cos(angle) * factor_;
    const float sine = std::sin(angle) * factor_;
    cosines_.push_back(rounds_ ? RoundToBf16(cosine) : cosine);
    sines_.push_back(rounds_ ? RoundToBf16(sine) : sine);
  }
}

void RotaryTable::Grow(std::int64_t tokens) {
  const std::int64_t needed = IsLong(tokens) || short_rows_ == 0 ? short_rows_ + tokens : short_rows_;
  for (; rows_ < needed; ++rows_) {
    const bool is_short = rows_ < short_rows_;
    Append(is_short ? frequencies_ : long_frequencies_, is_short ? rows_ : rows_ - short_rows_);
  }
}

}  // namespace draftmill
