#include "stages/extract/device_support.h"

#include <string>

namespace draftmill {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

/// What stands against it, or null.
const char* Obstacle(const ModelConfig& config) {
  if (config.quantization.method != QuantizationMethod::kNone) return "quantised weights";
  if (config.latent) return "multi-head latent attention";
  if (config.experts) return "routed experts";
  if (config.attention_softcap > 0) return "a soft cap on attention's logits";
  if (config.attention_sinks) return "attention sinks";
  if (config.rope.type == RopeType::kLongRope) return "longrope";
  if (config.activation == Activation::kClampedSwiglu) return "the clamped SwiGLU";
  if (config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) return "heads whose dims are no multiple of 8 up to 256";
  return nullptr;
}

}  // namespace

Status CheckDeviceSupports(const ModelConfig& config) {
  const char* const obstacle = Obstacle(config);
  if (obstacle == nullptr) return OkStatus();
  return Unsupported("the engine for GPUs does not run models with " + std::string(obstacle) + " (" + config.architecture + ")");
}

}  // namespace draftmill
