#include "stages/extract/model/rope.h"

#include <algorithm>
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
  const double smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// The pair at which `rotations` whole turns fit into the first training length (Peng 2023, YaRN).
double YarnPairOf(double rotations, const RopeConfig& rope) {
  const auto original = static_cast<double>(rope.original_max_positions);
  return static_cast<double>(rope.rotary_dims) * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

double ScaleYarn(double frequency, std::size_t pair, const YarnRamp& ramp, double factor) {
  const double width = std::max(ramp.to - ramp.from, 0.001);  // transformers' guard against a ramp of no width
  const double share = std::clamp((static_cast<double>(pair) - ramp.from) / width, 0.0, 1.0);
  return frequency / factor * share + frequency * (1 - share);
}

}  // namespace

YarnRamp YarnRampOf(const RopeConfig& rope) {
  YarnRamp ramp{YarnPairOf(rope.beta_fast, rope), YarnPairOf(rope.beta_slow, rope)};
  if (rope.truncate) ramp = {std::floor(ramp.from), std::ceil(ramp.to)};
  return {std::max(ramp.from, 0.0), std::min(ramp.to, static_cast<double>(rope.rotary_dims - 1))};
}

const char* RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault: return "default";
    case RopeType::kLinear: return "linear";
    case RopeType::kLlama3: return "llama3";
    case RopeType::kYarn: return "yarn";
    case RopeType::kLongRope: return "longrope";
  }
  return "unknown";
}

std::vector<double> InverseFrequencies(const RopeConfig& rope, bool long_sequence) {
  const YarnRamp ramp = rope.type == RopeType::kYarn ? YarnRampOf(rope) : YarnRamp{};
  std::vector<double> frequencies(static_cast<std::size_t>(rope.rotary_dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.rotary_dims);
    const double frequency = std::pow(rope.theta, -exponent);
    switch (rope.type) {
      case RopeType::kDefault: frequencies[i] = frequency; break;
      case RopeType::kLinear: frequencies[i] = frequency / rope.factor; break;
      case RopeType::kLlama3: frequencies[i] = ScaleLlama3(frequency, rope); break;
      case RopeType::kYarn: frequencies[i] = ScaleYarn(frequency, i, ramp, rope.factor); break;
      case RopeType::kLongRope:
        frequencies[i] = frequency / (long_sequence ? rope.long_factors : rope.short_factors)[i];
        break;
    }
  }
  return frequencies;
}

namespace {

float PublishedLlama3(float frequency, const RopeConfig& rope) {
  const auto original = static_cast<float>(rope.original_max_positions);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto band = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  // torch divides a number by a tensor as the tensor's reciprocal times the number.
  const float wavelength = (1 / frequency) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength < static_cast<float>(static_cast<double>(rope.original_max_positions) / rope.high_freq_factor))
    return frequency;
  if (wavelength > static_cast<float>(static_cast<double>(rope.original_max_positions) / rope.low_freq_factor))
    return frequency / factor;
  const float smooth = ((1 / wavelength) * original - low) / band;
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

float PublishedYarn(float period, std::size_t pair, const YarnRamp& ramp, double factor) {
  const double to = ramp.from == ramp.to ? ramp.to + 0.001 : ramp.to;
  const float share = std::clamp(
      (static_cast<float>(pair) - static_cast<float>(ramp.from)) / static_cast<float>(to - ramp.from), 0.0F, 1.0F);
  const float kept = 1 - share;
  return 1 / (static_cast<float>(factor) * period) * (1 - kept) + 1 / period * kept;
}

}  // namespace

std::vector<float> PublishedFrequencies(const RopeConfig& rope, bool long_sequence) {
  const YarnRamp ramp = rope.type == RopeType::kYarn ? YarnRampOf(rope) : YarnRamp{};
  std::vector<float> frequencies(static_cast<std::size_t>(rope.rotary_dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dims);
    const auto period = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    switch (rope.type) {
      case RopeType::kDefault: frequencies[i] = 1 / period; break;
      case RopeType::kLinear: frequencies[i] = 1 / period / static_cast<float>(rope.factor); break;
      case RopeType::kLlama3: frequencies[i] = PublishedLlama3(1 / period, rope); break;
      case RopeType::kYarn: frequencies[i] = PublishedYarn(period, i, ramp, rope.factor); break;
      case RopeType::kLongRope:
        frequencies[i] = 1 / (static_cast<float>((long_sequence ? rope.long_factors : rope.short_factors)[i]) * period);
        break;
    }
  }
  return frequencies;
}

}  // namespace draftmill
