#include "stages/extract/model/device_support.h"

#include <algorithm>
#include <string>

namespace draftmill {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMaxNormWidth = 16384;
constexpr std::int64_t kMaxExperts = 2048;

/// What stands against it, or null: limits of kernels/decoder_cuda.h, attention_cuda.h and experts_cuda.h.
const char* Obstacle(const ModelConfig& config) {
  if (config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0)
    return "heads of more than 256 or an odd number of dims";
  if (config.latent && config.latent->v_dim > kMaxHeadDim) return "values of more than 256 dims a head";
  if (config.hidden_size > kMaxNormWidth) return "a hidden size beyond 16,384";
  if (config.latent && std::max(config.latent->q_lora_rank, config.latent->kv_lora_rank) > kMaxNormWidth)
    return "latents beyond 16,384";
  if (config.experts && config.experts->experts > kMaxExperts) return "more than 2,048 experts in a layer";
  return nullptr;
}

}  // namespace

Status CheckDeviceSupports(const ModelConfig& config) {
  const char* const obstacle = Obstacle(config);
  if (obstacle == nullptr) return OkStatus();
  return Unsupported("the engine for GPUs does not run models with " + std::string(obstacle) + " (" +
                     config.architecture + ")");
}

}  // namespace draftmill
