#include "stages/extract/memory/device_branch_memory.h"

#include <algorithm>

namespace draftmill {
namespace {

constexpr std::int64_t kBf16 = 2;
constexpr std::int64_t kFloat = 4;
/// A router whose weights are no bfloat16 numbers is multiplied as a sum of three that are.
constexpr std::int64_t kRouterParts = 3;

std::int64_t RouterParts(const MixtureOfExperts& moe) {
  return moe.scoring == RouterScoring::kSigmoidBiased ? kRouterParts : 1;
}

}  // namespace

std::int64_t WidestMlp(const ModelConfig& config) {
  if (!config.experts) return config.intermediate_size;
  const MixtureOfExperts& moe = *config.experts;
  const std::int64_t experts = std::max<std::int64_t>(1, moe.shared_experts) * moe.expert_intermediate;
  return moe.dense_layers.empty() ? experts : std::max(experts, config.intermediate_size);
}

std::int64_t BatchRowBytes(const ModelConfig& config) {
  std::int64_t attention = config.qkv_width() + config.q_width();
  if (config.latent) {
    const LatentAttention& latent = *config.latent;
    attention = latent.q_lora_rank + latent.kv_lora_rank + latent.rope_dim +
                std::max(latent.q_lora_rank, latent.kv_lora_rank) + 2 * config.q_width() +
                config.num_heads * (latent.nope_dim + 2 * latent.v_dim);
  }
  return kBf16 * (attention + (config.experts ? 0 : 3 * WidestMlp(config)));
}

std::int64_t BlockRowBytes(const ModelConfig& config) {
  if (!config.experts) return 0;
  const MixtureOfExperts& moe = *config.experts;
  // A row for each choice; the choice, its weight and its place; logits.
  return moe.top_k * (kBf16 * config.hidden_size + 3 * kFloat) + RouterParts(moe) * kFloat * moe.experts;
}

std::int64_t FixedBranchBytes(const ModelConfig& config) {
  if (!config.experts) return 0;
  const MixtureOfExperts& moe = *config.experts;
  const std::int64_t parts = RouterParts(moe) > 1 ? kBf16 * kRouterParts * moe.experts * config.hidden_size : 0;
  // Pieces are of rows for choices, so of nearly any block as long as they may be; of grouped products the results.
  const std::int64_t piece_row = 3 * WidestMlp(config) + 2 * moe.expert_intermediate + config.hidden_size;
  const std::int64_t pieces = kBf16 * kMostPieceRows * piece_row;
  const bool packed = config.quantization.method != QuantizationMethod::kNone;
  return parts + pieces + (packed ? kBf16 * kExpandedExperts * 3 * moe.expert_intermediate * config.hidden_size : 0);
}

}  // namespace draftmill
