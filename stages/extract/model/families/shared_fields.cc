#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 31;

/// Which layers have a window by layer_types; nothing where the file has no such list, or a malformed one.
std::optional<std::vector<bool>> StatedWindows(ConfigFields& fields, std::int64_t num_layers) {
  const json::Value* types = fields.Find("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() || static_cast<std::int64_t>(types->as_array().size()) != num_layers) {
    fields.FailInput("layer_types must be a list with one entry a layer");
    return std::nullopt;
  }
  std::vector<bool> windows;
  for (const json::Value& type : types->as_array()) {
    const std::string name = type.is_string() ? type.as_string() : std::string(type.KindName());
    if (name != "sliding_attention" && name != "full_attention") {
      fields.FailUnsupported("layer_types knows full_attention and sliding_attention only, not " + name);
      return std::nullopt;
    }
    windows.push_back(name == "sliding_attention");
  }
  return windows;
}

}  // namespace

void RequireSilu(ConfigFields& fields) {
  const std::string activation = fields.TextOr("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.FailUnsupported("hidden_act " + activation + " is not supported for this family (known: silu)");
  }
}

void ReadPlainRope(ConfigFields& fields, ModelConfig& config) {
  RopeFields read = ReadRope(fields, config.head_dim,
                             {.theta = config.family->defaults.rope_theta, .max_positions = config.max_positions});
  config.rope = std::move(read.rope);
  config.rope_stated = std::move(read.stated);
}

void ReadWindowOfAllLayers(ConfigFields& fields, ModelConfig& config, std::int64_t of_class) {
  const bool stated = fields.Find("sliding_window") != nullptr;
  if (!stated && (of_class == 0 || fields.IsNull("sliding_window"))) return;
  config.sliding_window = fields.IntegerOr("sliding_window", 1, kMaxWindow, of_class);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

void ReadAlternatingWindow(ConfigFields& fields, ModelConfig& config, std::int64_t of_class, std::int64_t period) {
  const bool off = fields.IsNull("sliding_window");
  if (!off) config.sliding_window = fields.IntegerOr("sliding_window", 1, kMaxWindow, of_class);
  ReadSlidingLayers(
      fields, config, [](std::int64_t layer, std::int64_t every) { return (layer + 1) % every != 0; }, period);
  if (off && !config.sliding_layers.empty()) {
    fields.FailUnsupported("sliding_window is null, but layer " + std::to_string(config.sliding_layers.front()) +
                           " has a window (by layer_types, or as every such layer of this family)");
  }
}

void ReadSlidingLayers(ConfigFields& fields, ModelConfig& config,
                       bool (*is_sliding)(std::int64_t layer, std::int64_t period), std::int64_t period) {
  const std::optional<std::vector<bool>> stated = StatedWindows(fields, config.num_layers);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool sliding = stated.has_value() ? (*stated)[static_cast<std::size_t>(layer)] : is_sliding(layer, period);
    if (sliding) config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

void CheckLayerTypes(ConfigFields& fields, const ModelConfig& config) {
  const std::optional<std::vector<bool>> stated = StatedWindows(fields, config.num_layers);
  if (!stated.has_value()) return;
  std::vector<bool> read(stated->size(), false);
  for (const std::int32_t layer : config.sliding_layers) read[static_cast<std::size_t>(layer)] = true;
  for (std::size_t layer = 0; layer < read.size(); ++layer) {
    if (read[layer] == (*stated)[layer]) continue;
    return fields.FailUnsupported("layer_types says " + std::string(read[layer] ? "full" : "sliding") +
                                  "_attention of layer " + std::to_string(layer) +
                                  ", but by sliding_window and the fields beside it this family's class gives it " +
                                  (read[layer] ? "a" : "no") + " window; which one is meant cannot be known");
  }
}

}  // namespace draftmill::families
