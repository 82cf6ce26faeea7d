// A layer's weights on a GPU, wherever they live: pointers at the offsets of its LayerLayout, as on the CPU.
//
//   DeviceLinear({.a = x, .weight = layer.Matrix(layer.layout->qkv), .bias = layer.Bias(layer.layout->qkv_bias), ...});
//
// A plain view: valid as long as its owner says. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bfloat16.h"
#include "stages/extract/model/layer_layout.h"

namespace draftmill {

struct DeviceLayer {
  const LayerLayout* layout = nullptr;
  const float* vectors = nullptr;
  const Bf16* biases = nullptr;  ///< the vectors as bfloat16: products add biases of their operands' type
  const Bf16* matrices = nullptr;
  const std::byte* packed = nullptr;  ///< experts of a quantised checkpoint

  const float* Vector(std::int64_t offset) const { return offset < 0 ? nullptr : vectors + offset; }
  const Bf16* Bias(std::int64_t offset) const { return offset < 0 ? nullptr : biases + offset; }
  const Bf16* Matrix(std::int64_t offset) const { return matrices + offset; }
};

}  // namespace draftmill
