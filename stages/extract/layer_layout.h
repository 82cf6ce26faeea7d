// How a layer's weights stand in one block of numbers: vectors first, then the matrices with q, k, v and gate, up fused.
#pragma once

#include <cstdint>

#include "stages/extract/model_config.h"

namespace draftmill {

/// Offsets in elements of the parts of a layer's block; -1 where the model has no such part. Vectors stand first.
struct LayerLayout {
  std::int64_t input_norm = -1;
  std::int64_t post_norm = -1;
  std::int64_t q_norm = -1;
  std::int64_t k_norm = -1;
  std::int64_t qkv_bias = -1;
  std::int64_t o_bias = -1;
  std::int64_t gate_up_bias = -1;
  std::int64_t down_bias = -1;
  std::int64_t vectors_end = 0;
  std::int64_t qkv = -1;       ///< [heads + 2 kv_heads, hidden] times head_dim
  std::int64_t o = -1;         ///< [hidden, heads * head_dim]
  std::int64_t gate_up = -1;   ///< [2 * intermediate, hidden]
  std::int64_t down = -1;      ///< [hidden, intermediate]
  std::int64_t total = 0;
};

/// The layout that a model's layers share. Every part begins at a multiple of 64 elements.
LayerLayout LayoutOfLayers(const ModelConfig& config);

}  // namespace draftmill
