// A model's weights on a GPU: each layer in the form of its LayerLayout, so that a layer is a few copies and the decoder
// finds every part at the same offset as on the CPU.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceWeights weights, DeviceWeights::Load(model, store, layers));
//   const DeviceLayer layer = weights.layer(3);
//
// Loaded on the GPU that is current; constant afterwards. kOutOfMemory where the GPU has no room.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device_layer.h"
#include "stages/extract/weight_store.h"

namespace draftmill {

class DeviceWeights {
 public:
  /// Copies the embedding and the first `layers` layers; what lies above the last captured layer is not needed.
  static Result<DeviceWeights> Load(const ModelConfig& config, WeightStore<Bf16>& store, std::int64_t layers);

  const Bf16* embedding() const { return embedding_.data(); }
  /// Valid as long as the weights.
  DeviceLayer layer(std::int64_t index) const;

 private:
  struct Layer {
    LayerLayout layout;
    cuda::DeviceBuffer<float> vectors;
    cuda::DeviceBuffer<Bf16> biases;
    cuda::DeviceBuffer<Bf16> matrices;
    cuda::DeviceBuffer<std::byte> packed;
  };
  static Result<Layer> Upload(const LayerView<Bf16>& view);

  cuda::DeviceBuffer<Bf16> embedding_;
  std::vector<Layer> layers_;
};

}  // namespace draftmill
