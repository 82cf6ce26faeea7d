#include "stages/extract/rope.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace draftmill {
namespace {

/// Long waves are stretched by `factor`, short ones stay, those between are mixed (Llama 3.1's rule).
double ScaleLlama3(double frequency, const RopeConfig& rope) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

const char* RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault: return "default";
    case RopeType::kLinear: return "linear";
    case RopeType::kLlama3: return "llama3";
  }
  return "unknown";
}

std::vector<double> InverseFrequencies(const RopeConfig& rope) {
  std::vector<double> frequencies(static_cast<std::size_t>(rope.rotary_dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.rotary_dims);
    const double frequency = std::pow(rope.theta, -exponent);
    switch (rope.type) {
      case RopeType::kDefault: frequencies[i] = frequency; break;
      case RopeType::kLinear: frequencies[i] = frequency / rope.factor; break;
      case RopeType::kLlama3: frequencies[i] = ScaleLlama3(frequency, rope); break;
    }
  }
  return frequencies;
}

}  // namespace draftmill
