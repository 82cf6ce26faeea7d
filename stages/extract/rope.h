// Rotary position embedding as a model's config.json describes it: which frequencies, scaled how.
//
//   std::vector<double> frequencies = InverseFrequencies(config.rope);   // [rotary_dims / 2]
//
// Rules follow transformers' modeling_rope_utils.py (types default, linear, llama3). Plain values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace draftmill {

/// How the frequencies are stretched for sequences longer than the first training length.
enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3 };

/// What config.json says about rotation, with the family's defaults where it is silent.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  std::int64_t rotary_dims = 0;            ///< leading dims of a head that are rotated, in halves (d, d + rotary_dims / 2)
  double factor = 1.0;                     ///< linear, llama3
  double low_freq_factor = 1.0;            ///< llama3
  double high_freq_factor = 4.0;           ///< llama3
  std::int64_t original_max_positions = 0; ///< llama3
};

/// "default", "linear", "llama3": as in config.json.
const char* RopeTypeName(RopeType type);

/// Radians per position of each rotated pair, in double precision.
std::vector<double> InverseFrequencies(const RopeConfig& rope);

}  // namespace draftmill
