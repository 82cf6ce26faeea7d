#include "stages/extract/memory/cpu_memory.h"

#include <algorithm>

#include "kernels/instruction_set.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/extract/model/layer_layout.h"
#include "stages/extract/weights/weight_files.h"

namespace draftmill {

std::int64_t KvHeads(const ModelConfig& config) { return config.latent ? config.num_heads : config.num_kv_heads; }

std::int64_t ValueDim(const ModelConfig& config) { return config.latent ? config.latent->v_dim : config.head_dim; }

std::int64_t AttentionRows(const ModelConfig& config) {
  return std::max(kQueryBlock * (config.num_heads / KvHeads(config)), kMinProductRows);
}

namespace {

/// Elements that one thread's tile needs for the projections of attention.
std::int64_t ProjectionElements(const ModelConfig& config) {
  if (!config.latent) return kTileRows * config.qkv_width();
  const LatentAttention& latent = *config.latent;
  const std::int64_t compressed = latent.kv_lora_rank + latent.rope_dim;
  return kTileRows *
         (config.q_width() + std::max(latent.q_lora_rank, compressed) +
          std::max(latent.q_lora_rank, latent.kv_lora_rank) + config.num_heads * (latent.nope_dim + latent.v_dim));
}

/// Elements that one thread needs for routed experts: a tile's rows twice, widened for the router, its logits (the last two in
/// float32, so twice as many of bfloat16), one expert's weights twice.
std::int64_t ExpertElements(const ModelConfig& config) {
  if (!config.experts) return 0;
  const MixtureOfExperts& moe = *config.experts;
  const std::int64_t mlp_width = std::max<std::int64_t>(moe.shared_experts, 1) * moe.expert_intermediate;
  return kTileRows * (4 * config.hidden_size + 2 * moe.experts + 3 * mlp_width) +
         2 * 3 * moe.expert_intermediate * config.hidden_size;
}

/// Elements of one token of a block: residual stream, q, k, v, attention's result, and what routed experts keep.
std::int64_t TokenElements(const ModelConfig& config) {
  const std::int64_t heads = config.num_heads * (config.head_dim + ValueDim(config));
  const std::int64_t kv = KvHeads(config) * (config.head_dim + ValueDim(config));
  const std::int64_t routed = config.experts ? 3 * config.hidden_size + 4 * config.experts->top_k : 0;
  return config.hidden_size + heads + kv + routed;
}

}  // namespace

EngineMemory CpuMemoryOf(const ModelConfig& config, std::int64_t layers) {
  const std::int64_t stored_bytes = config.compute == ComputeType::kBfloat16 ? 2 : 4;
  EngineMemory memory;
  memory.reading_bytes = kReadingBytes;
  std::int64_t all_layers = 0;
  std::int64_t widened = 0;
  std::int64_t vectors = 0;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerLayout layout = LayoutOfLayer(config, layer);
    const std::int64_t of_layer = 4 * layout.vectors_total + stored_bytes * layout.matrices_total + layout.packed.bytes;
    all_layers += of_layer;
    memory.layer_bytes = std::max(memory.layer_bytes, of_layer);
    const std::int64_t dense = layout.experts_gate_up >= 0 ? layout.experts_gate_up : layout.matrices_total;
    widened = std::max(widened, dense);
    vectors = std::max(vectors, layout.vectors_total);
  }
  const std::int64_t tile =
      kTileRows * (3 * config.hidden_size + 3 * config.intermediate_size) + ProjectionElements(config);
  const std::int64_t attention = AttentionRows(config) * (kKeyBlock + ValueDim(config) + 3);
  // Where the processor multiplies bfloat16, no matrix is widened but biases are narrowed, and a tile's operands are half as
  // large.
  const bool bf16_products = config.compute == ComputeType::kBfloat16 && HasBf16Products();
  memory.resident_bytes = stored_bytes * config.vocab_size * config.hidden_size + all_layers;
  memory.shared_bytes = bf16_products ? 2 * kHeldLayers * vectors : stored_bytes == 4 ? 0 : 4 * widened;
  memory.thread_bytes = (bf16_products ? 2 : 4) * (tile + ExpertElements(config)) + 4 * attention;
  memory.token_bytes = 4 * TokenElements(config) + 2 * layers * config.hidden_size + 8;
  return memory;
}

}  // namespace draftmill
