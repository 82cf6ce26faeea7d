#include "stages/extract/cpu_memory.h"

#include <algorithm>

#include "stages/extract/layer_layout.h"
#include "stages/extract/weight_files.h"

namespace draftmill {

std::int64_t AttentionRows(const ModelConfig& config) {
  return std::max(kQueryBlock * (config.num_heads / config.num_kv_heads), kMinProductRows);
}

EngineMemory CpuMemoryOf(const ModelConfig& config, std::int64_t layers) {
  const std::int64_t stored_bytes = config.compute == ComputeType::kBfloat16 ? 2 : 4;
  EngineMemory memory;
  memory.reading_bytes = kReadingBytes;
  std::int64_t all_layers = 0;
  std::int64_t largest_layer = 0;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerLayout layout = LayoutOfLayer(config, layer);
    const std::int64_t of_layer = 4 * layout.vectors_total + stored_bytes * layout.matrices_total + layout.packed.bytes;
    all_layers += of_layer;
    memory.layer_bytes = std::max(memory.layer_bytes, of_layer);
    largest_layer = std::max(largest_layer, layout.vectors_total + layout.matrices_total);
  }
  const std::int64_t tile = kTileRows * (2 * config.hidden_size + config.intermediate_size +
                                         std::max(config.qkv_width(), 2 * config.intermediate_size));
  const std::int64_t attention = AttentionRows(config) * (kKeyBlock + config.head_dim + 3);
  const std::int64_t activations = config.hidden_size + 2 * config.q_width() + 2 * config.kv_width();
  memory.resident_bytes = stored_bytes * config.vocab_size * config.hidden_size + all_layers;
  memory.shared_bytes = 2 * 4 * largest_layer;
  memory.thread_bytes = 4 * (tile + attention);
  memory.token_bytes = 4 * activations + 2 * layers * config.hidden_size + 8;
  return memory;
}

}  // namespace draftmill
