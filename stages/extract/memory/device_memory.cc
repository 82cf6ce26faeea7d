#include "stages/extract/memory/device_memory.h"

#include <algorithm>

#include "stages/extract/memory/device_branch_memory.h"
#include "stages/extract/model/layer_layout.h"

namespace draftmill {

EngineMemory DeviceMemoryOf(const ModelConfig& config, const std::vector<std::int32_t>& layers) {
  EngineMemory memory;
  memory.shared_bytes = 2 * config.vocab_size * config.hidden_size;
  memory.resident_bytes = memory.shared_bytes;
  for (std::int64_t i = 0; i < layers.back(); ++i) {
    const LayerLayout layout = LayoutOfLayer(config, i);
    // Vectors are kept in float32 and in bfloat16.
    const std::int64_t bytes = 6 * layout.vectors_total + 2 * layout.matrices_total + layout.packed.bytes;
    memory.layer_bytes = std::max(memory.layer_bytes, bytes);
    memory.resident_bytes += bytes;
  }
  // Residual stream and branch stay for the whole block; where experts take a block's rows, so does what they read.
  memory.block_token_bytes = 2 * config.hidden_size * (config.experts ? 3 : 2) + BlockRowBytes(config);
  memory.token_bytes = 2 * (1 + kCaptureBuffers) * config.hidden_size + BatchRowBytes(config) + 64;
  memory.shared_bytes += FixedBranchBytes(config);
  memory.resident_bytes += FixedBranchBytes(config);
  return memory;
}

}  // namespace draftmill
