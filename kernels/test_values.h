// Values and instruction sets for the tests of kernels.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/instruction_set.h"

namespace draftmill {

/// Normal values; `rounded` ones are bfloat16.
inline std::vector<float> RandomValues(std::size_t count, unsigned seed, float scale = 1.0F, bool rounded = true) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = rounded ? RoundToBf16(normal(random)) : normal(random);
  return values;
}

inline std::vector<Bf16> Narrowed(const std::vector<float>& values) {
  std::vector<Bf16> narrow(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = ToBf16(values[i]);
  return narrow;
}

inline std::vector<InstructionSet> AvailableSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set <= DetectInstructionSet()) sets.push_back(set);
  }
  return sets;
}

}  // namespace draftmill
