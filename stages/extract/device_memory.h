// What the GPU engine takes of a GPU and of the host, and what `auto` sizes mean there. Pure functions; no CUDA here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "stages/extract/auto_sizes.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model_config.h"

namespace draftmill {

/// Batches that are under way on a GPU at a time.
inline constexpr int kDeviceSlots = 2;
/// Batches of states that the host must hold for each GPU: those under way and one that is written.
inline constexpr int kFewestSlabs = kDeviceSlots + 1;

/// Weights of the layers below the last captured one, and the buffers of one token of a batch, on each GPU.
EngineMemory DeviceMemoryOf(const ModelConfig& config, const std::vector<std::int32_t>& layers);

/// Batches of 32,768 tokens, fewer where the GPU or limits.memory has no room for them; blocks of one batch, because with
/// weights that stay on the GPU no other order saves anything. kOutOfMemory where not even the smallest batch fits.
Result<ExtractSizes> ResolveDeviceSizes(const ModelDescription& model, const ExtractOptions& options);

}  // namespace draftmill
