// Rotary position embedding as a model's config.json describes it: which frequencies, scaled how.
//
//   std::vector<double> frequencies = InverseFrequencies(config.rope);   // [rotary_dims / 2]
//
// Rules follow transformers' modeling_rope_utils.py (types default, linear, llama3, yarn, longrope). Plain values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace draftmill {

/// How the frequencies are stretched for sequences longer than the first training length.
enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3, kYarn, kLongRope };

/// What config.json says about rotation, with the family's defaults where it is silent.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  std::int64_t rotary_dims = 0;   ///< leading dims of a head that are rotated, in halves (d, d + rotary_dims / 2)
  bool interleaved = false;       ///< pairs are (2i, 2i + 1) instead of halves (DeepSeek-V3, Kimi)
  double factor = 1.0;            ///< linear, llama3, yarn
  double low_freq_factor = 1.0;   ///< llama3
  double high_freq_factor = 4.0;  ///< llama3
  std::int64_t original_max_positions = 0;  ///< llama3, yarn, longrope
  double beta_fast = 32.0;                  ///< yarn
  double beta_slow = 1.0;                   ///< yarn
  bool truncate = true;                     ///< yarn: ramp ends are whole numbers; gpt-oss: false
  double cos_sin_factor = 1.0;              ///< yarn's and longrope's attention factor, resolved
  std::vector<double> short_factors;        ///< longrope, [rotary_dims / 2]
  std::vector<double> long_factors;         ///< longrope: sequences longer than original_max_positions
};

/// "default", "linear", "llama3", "yarn", "longrope": as in config.json.
const char* RopeTypeName(RopeType type);

/// Pairs between which yarn goes over from the plain frequencies to the stretched ones.
struct YarnRamp {
  double from = 0;
  double to = 0;
};
YarnRamp YarnRampOf(const RopeConfig& rope);

/// Radians per position of each rotated pair, in double precision. `long_sequence` matters to longrope alone: true for a
/// sequence of more than original_max_positions tokens.
std::vector<double> InverseFrequencies(const RopeConfig& rope, bool long_sequence = false);

/// The same as the published models compute them: in float32, operation by operation as transformers does. At position
/// 30,000 the last bit of a frequency is a thousandth of a radian.
std::vector<float> PublishedFrequencies(const RopeConfig& rope, bool long_sequence = false);

}  // namespace draftmill
