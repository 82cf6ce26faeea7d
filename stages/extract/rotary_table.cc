#include "stages/extract/rotary_table.h"

#include <cmath>

#include "kernels/bfloat16.h"

namespace draftmill {

RotaryTable::RotaryTable(const RopeConfig& rope, bool rounds) : rounds_(rounds) {
  for (const double frequency : InverseFrequencies(rope)) frequencies_.push_back(static_cast<float>(frequency));
}

void RotaryTable::Grow(std::int64_t count) {
  // Angles are products of float32 numbers, as in transformers: at large positions their rounding is seen.
  for (; count_ < count; ++count_) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(count_) * frequency;
      const float cosine = std::cos(angle);
      const float sine = std::sin(angle);
      cosines_.push_back(rounds_ ? RoundToBf16(cosine) : cosine);
      sines_.push_back(rounds_ ? RoundToBf16(sine) : sine);
    }
  }
}

}  // namespace draftmill
