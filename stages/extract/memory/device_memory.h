// What the GPU engine takes of a GPU. Pure functions; no CUDA here.
#pragma once

#include <cstdint>
#include <vector>

#include "stages/extract/extractor.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// Blocks that are under way on a GPU at a time, where the host has room for their states.
inline constexpr int kDeviceSlots = 2;
/// Captured layers of a batch that wait on a GPU for their copy to the host.
inline constexpr int kCaptureBuffers = 3;

/// Weights of the layers below the last captured one, and the buffers of one token of a batch and of a block, on each GPU.
EngineMemory DeviceMemoryOf(const ModelConfig& config, const std::vector<std::int32_t>& layers);

}  // namespace draftmill
