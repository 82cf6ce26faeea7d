#include "stages/extract/device_memory.h"

#include <string>

#include "stages/extract/layer_layout.h"

namespace draftmill {
namespace {

/// Products run at their full rate from here on, and one attention plan serves nearly every batch.
constexpr std::int64_t kBatchTokens = 32768;
constexpr std::int64_t kFewestTokens = 1024;
/// What driver, torch and libraries take of a GPU.
constexpr std::int64_t kReserveBytes = std::int64_t{3} << 30;

}  // namespace

EngineMemory DeviceMemoryOf(const ModelConfig& config, const std::vector<std::int32_t>& layers) {
  EngineMemory memory;
  memory.resident_bytes = 2 * config.vocab_size * config.hidden_size;
  for (std::int64_t i = 0; i < layers.back(); ++i) {
    const LayerLayout layout = LayoutOfLayer(config, i);
    memory.resident_bytes += 6 * layout.vectors_total + 2 * layout.matrices_total + layout.packed.bytes;
  }
  const std::int64_t captured = kDeviceSlots * static_cast<std::int64_t>(layers.size()) * config.hidden_size;
  memory.token_bytes = 2 * (3 * config.hidden_size + config.qkv_width() + config.q_width() + 3 * config.intermediate_size + captured) + 64;
  return memory;
}

Result<ExtractSizes> ResolveDeviceSizes(const ModelDescription& model, const ExtractOptions& options) {
  const std::int64_t state_bytes = 2 * static_cast<std::int64_t>(model.layers.size()) * model.hidden_size;
  const std::int64_t fixed_bytes = model.device_memory.resident_bytes + kReserveBytes;
  const auto fits = [&](std::int64_t tokens) {
    const bool on_host = options.memory_bytes <= 0 || kFewestSlabs * state_bytes * tokens <= options.memory_bytes;
    return on_host && fixed_bytes + model.device_memory.token_bytes * tokens <= options.device_bytes;
  };
  for (std::int64_t tokens = kBatchTokens; tokens >= kFewestTokens; tokens /= 2) {
    if (fits(tokens)) return ExtractSizes{tokens, tokens};
  }
  return OutOfMemory("the model does not fit on the GPU with room for a batch: its weights take " +
                     std::to_string(model.device_memory.resident_bytes) + " bytes there, " +
                     std::to_string(options.device_bytes) + " are free, and " + std::to_string(options.memory_bytes) +
                     " are allowed on the host. End what else runs on the GPU, raise limits.memory, or set extract.device to cpu.");
}

}  // namespace draftmill
