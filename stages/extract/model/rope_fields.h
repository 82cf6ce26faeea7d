// Reads how a model rotates positions from its config.json, in both spellings: rope_parameters (transformers 5), or
// rope_theta with rope_scaling (before).
#pragma once

#include <cstdint>

#include "base/json.h"
#include "stages/extract/model/config_fields.h"
#include "stages/extract/model/rope.h"

namespace draftmill {

/// What a family's class says where config.json is silent, and what its fields mean.
struct RopeDefaults {
  double theta = 10000.0;
  std::int64_t max_positions = 0;  ///< of the model: gives factors that the file leaves to it
  bool partial = false;            ///< partial_rotary_factor counts; elsewhere one that is not 1 is refused
  const char* theta_field = "rope_theta";
  const char* layer_type = nullptr;  ///< key of this rotation where rope_parameters are given by layer type
  bool scaled = true;                ///< false: rope_scaling is not meant for this rotation
  /// Training length that the class takes where the file has none beside the section, whatever stands in it; 0 for none.
  std::int64_t original_positions = 0;
  bool yarn_is_longrope = false;  ///< with factors by dimension: the name in Phi-3's first files
};

/// What was read.
struct RopeFields {
  RopeConfig rope;
  json::Value stated;         ///< object: the scaling's parameters as the file states them, lists as counts
  double mscale_all_dim = 0;  ///< of any scaling, by the classes that read it; 0 where absent
};

/// Reads the rotation of heads of `head_dim`. Failures go into `fields`.
RopeFields ReadRope(ConfigFields& fields, std::int64_t head_dim, const RopeDefaults& defaults);

/// 0.1 * mscale * ln(factor) + 1: how yarn sharpens attention.
double YarnMscale(double factor, double mscale);

}  // namespace draftmill
