// The tensors of a layer as checkpoints name them, and the part of the layer's memory that each becomes: the one
// description from which names, layouts and reading follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/extract/model/layer_layout.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// How a stored tensor's elements stand in their part.
enum class TensorOrder : std::uint8_t {
  kAsStored,
  kPairedRows,     ///< rows (or elements of a vector) are gate, up, gate, up, ... for each expert
  kPairedColumns,  ///< [experts, inputs, outputs] with paired outputs
  kTransposed,     ///< [experts, inputs, outputs]
};

/// One tensor as published, before any quantisation.
struct LayerTensor {
  std::string name;  ///< within the layer: "self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  std::int64_t LayerLayout::*part = nullptr;
  std::int64_t first = 0;  ///< element of the part where it begins
  bool is_matrix = false;
  bool keeps_float32 = false;  ///< a vector that is never rounded to the compute type
  TensorOrder order = TensorOrder::kAsStored;
  std::int64_t expert = -1;   ///< of routed experts' matrices; -1 for all experts at once or none
  bool routed = false;        ///< a matrix of routed experts
  bool quantised = false;     ///< stored as the checkpoint's quantisation says
  bool stays_packed = false;  ///< quantised in memory too: routed experts of a layer where all of them are

  std::int64_t elements() const;
};

/// The tensors of one layer, in the order in which the layer's digest takes them.
std::vector<LayerTensor> LayerTensors(const ModelConfig& config, std::int64_t layer);

/// What a stored tensor holds: plain numbers, or a part of a quantised matrix.
enum class TensorRole : std::uint8_t {
  kPlain,
  kFp8Values,
  kFp8Scales,
  kInt4Values,
  kInt4Scales,
  kInt4Shape,
  kMxfp4Values,
  kMxfp4Scales
};

/// A tensor as it lies in the checkpoint.
struct StoredTensor {
  std::string name;  ///< within the layer
  std::vector<std::int64_t> shape;
  TensorRole role = TensorRole::kPlain;
};

/// What the checkpoint holds for a tensor: itself, or the parts of its quantised form, scales first.
std::vector<StoredTensor> StoredTensors(const Quantization& quantization, const LayerTensor& tensor);

/// The matrices of a layer that a quantisation may mean, with the layer's prefix and without ".weight".
std::vector<std::string> QuantisableModules(const ModelConfig& config, std::int64_t layer);

}  // namespace draftmill
