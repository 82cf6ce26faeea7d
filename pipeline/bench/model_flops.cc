#include "pipeline/bench/model_flops.h"

#include <algorithm>

#include "stages/extract/model/layer_layout.h"

namespace draftmill {
namespace {

/// Weights that a token is multiplied with.
double ActiveWeights(const ModelConfig& config, const LayerLayout& layout) {
  auto weights = static_cast<double>(layout.experts_gate_up >= 0 ? layout.experts_gate_up : layout.matrices_total);
  if (!layout.has_experts()) return weights;
  const MixtureOfExperts& moe = *config.experts;
  weights += static_cast<double>(moe.experts * config.hidden_size);  // the router
  return weights + static_cast<double>(moe.top_k * 3 * moe.expert_intermediate * config.hidden_size);
}

double Pairs(std::int64_t tokens, std::int64_t window) {
  const std::int64_t rising =
      window == 0 ? tokens : std::min(tokens, window);  // queries that see everything before them
  return static_cast<double>(rising) * static_cast<double>(rising + 1) / 2 +
         static_cast<double>(tokens - rising) * static_cast<double>(window);
}

}  // namespace

ModelFlops::ModelFlops(const ModelConfig& config, std::int64_t layers) {
  const std::int64_t value_dim = config.latent ? config.latent->v_dim : config.head_dim;
  for (std::int64_t i = 0; i < layers; ++i) {
    per_token_ += 2.0 * ActiveWeights(config, LayoutOfLayer(config, i));
    const auto& sliding = config.sliding_layers;
    const bool windowed = std::find(sliding.begin(), sliding.end(), static_cast<std::int32_t>(i)) != sliding.end();
    per_pair_[windowed ? config.sliding_window : 0] +=
        2.0 * static_cast<double>(config.num_heads * (config.head_dim + value_dim));
  }
}

double ModelFlops::Of(std::int64_t tokens) const {
  double flops = per_token_ * static_cast<double>(tokens);
  for (const auto& [window, each] : per_pair_) flops += each * Pairs(tokens, window);
  return flops;
}

}  // namespace draftmill
