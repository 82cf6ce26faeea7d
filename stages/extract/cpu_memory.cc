#include "stages/extract/cpu_memory.h"

#include <algorithm>

#include "stages/extract/layer_layout.h"

namespace draftmill {

std::int64_t AttentionRows(const ModelConfig& config) {
  return std::max(kQueryBlock * (config.num_heads / config.num_kv_heads), kMinProductRows);
}

EngineMemory CpuMemoryOf(const ModelConfig& config, std::int64_t layers) {
  const std::int64_t stored_bytes = config.compute == ComputeType::kBfloat16 ? 2 : 4;
  const LayerLayout layout = LayoutOfLayers(config);
  const std::int64_t tile = kTileRows * (2 * config.hidden_size + config.intermediate_size +
                                         std::max(config.qkv_width(), 2 * config.intermediate_size));
  const std::int64_t attention = AttentionRows(config) * (kKeyBlock + config.head_dim + 3);
  const std::int64_t activations = config.hidden_size + 2 * config.q_width() + 2 * config.kv_width();
  EngineMemory memory;
  memory.resident_bytes = stored_bytes * (config.vocab_size * config.hidden_size + config.num_layers * layout.total);
  memory.shared_bytes = 2 * 4 * layout.total;
  memory.thread_bytes = 4 * (tile + attention);
  memory.token_bytes = 4 * activations + 2 * layers * config.hidden_size + 8;
  return memory;
}

}  // namespace draftmill
