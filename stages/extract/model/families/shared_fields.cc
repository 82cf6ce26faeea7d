#include <string>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 31;

}  // namespace

void RequireSilu(ConfigFields& fields) {
  const std::string activation = fields.TextOr("hidden_act", "silu");
  if (activation != "silu") {
    fields.FailUnsupported("hidden_act " + activation + " is not supported for this family (known: silu)");
  }
}

void ReadPlainRope(ConfigFields& fields, ModelConfig& config) {
  RopeFields read = ReadRope(fields, config.head_dim,
                             {.theta = config.family->defaults.rope_theta, .max_positions = config.max_positions});
  config.rope = std::move(read.rope);
  config.rope_stated = std::move(read.stated);
}

void ReadWindowOfAllLayers(ConfigFields& fields, ModelConfig& config) {
  if (fields.Find("sliding_window") == nullptr) return;
  config.sliding_window = fields.Integer("sliding_window", 1, kMaxWindow);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

void ReadSlidingLayers(ConfigFields& fields, ModelConfig& config,
                       bool (*is_sliding)(std::int64_t layer, std::int64_t period), std::int64_t period) {
  const json::Value* types = fields.Find("layer_types");
  if (types != nullptr &&
      (!types->is_array() || static_cast<std::int64_t>(types->as_array().size()) != config.num_layers)) {
    return fields.FailInput("layer_types must be a list with one entry a layer");
  }
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    bool sliding = is_sliding(layer, period);
    if (types != nullptr) {
      const json::Value& type = types->as_array()[static_cast<std::size_t>(layer)];
      const std::string name = type.is_string() ? type.as_string() : std::string(type.KindName());
      if (name != "sliding_attention" && name != "full_attention") {
        return fields.FailUnsupported("layer_types knows full_attention and sliding_attention only, not " + name);
      }
      sliding = name == "sliding_attention";
    }
    if (sliding) config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

}  // namespace draftmill::families
