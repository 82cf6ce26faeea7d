// Cosines and sines of rotary positions, rounded as the model rounds them.
#pragma once

#include <cstdint>
#include <vector>

#include "stages/extract/rope.h"

namespace draftmill {

/// Grows to the longest sequence that was asked for. Not safe for growing while others read.
class RotaryTable {
 public:
  /// `rounds`: to bfloat16, as transformers casts them for a bfloat16 model.
  RotaryTable(const RopeConfig& rope, bool rounds);

  /// Makes positions 0 .. count - 1 available.
  void Grow(std::int64_t count);
  /// [count, rotary_dims / 2]
  const float* cosines() const { return cosines_.data(); }
  const float* sines() const { return sines_.data(); }

 private:
  std::vector<float> frequencies_;
  bool rounds_;
  std::int64_t count_ = 0;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace draftmill
