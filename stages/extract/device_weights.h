// A model's weights on a GPU: each layer in the form of its LayerLayout, so that a layer is a few copies and the decoder
// finds every part at the same offset as on the CPU.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceWeights weights, DeviceWeights::Load(model, store, layers));
//   Multiply(x, weights.layer(3).matrices.data() + weights.layer(3).layout.qkv, ...);
//
// Loaded on the GPU that is current; constant afterwards. kOutOfMemory where the GPU has no room.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"
#include "stages/extract/layer_layout.h"
#include "stages/extract/weight_store.h"

namespace draftmill {

struct DeviceLayer {
  LayerLayout layout;
  cuda::DeviceBuffer<float> vectors;
  cuda::DeviceBuffer<Bf16> biases;    ///< the same as bfloat16: products add biases of their operands' type
  cuda::DeviceBuffer<Bf16> matrices;

  const float* Vector(std::int64_t offset) const { return offset < 0 ? nullptr : vectors.data() + offset; }
  const Bf16* Bias(std::int64_t offset) const { return offset < 0 ? nullptr : biases.data() + offset; }
  const Bf16* Matrix(std::int64_t offset) const { return matrices.data() + offset; }
};

class DeviceWeights {
 public:
  /// Copies the embedding and the first `layers` layers; what lies above the last captured layer is not needed.
  static Result<DeviceWeights> Load(const ModelConfig& config, WeightStore<Bf16>& store, std::int64_t layers);

  const Bf16* embedding() const { return embedding_.data(); }
  const DeviceLayer& layer(std::int64_t index) const { return layers_[static_cast<std::size_t>(index)]; }

 private:
  cuda::DeviceBuffer<Bf16> embedding_;
  std::vector<DeviceLayer> layers_;
};

}  // namespace draftmill
