// How a layer's weights stand in memory: vectors as float32, matrices in the model's compute type with q, k, v and gate, up
// fused, and the experts of quantised checkpoints as bytes that are expanded on demand.
//
//   const LayerLayout layout = LayoutOfLayer(config, layer);
//   const float* norm = view.vectors + layout.input_norm;          // -1 where the layer has no such part
//   const Bf16* qkv = view.matrices + layout.qkv;
//
// Every part begins at a multiple of 64 elements (packed ones: of 64 bytes). Matrices are row-major, [outputs, inputs], as
// in checkpoints. Plain values and pure functions.
#pragma once

#include <cstdint>

#include "stages/extract/model/model_config.h"

namespace draftmill {

/// One matrix of an expert as the checkpoint packs it. Offsets in bytes from the expert's first byte.
struct PackedMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stacked = 1;  ///< matrices one above the other: 2 for gate and up; blocks of scales begin anew in each
  std::int64_t values =
      0;  ///< kBlockFp8: e4m3; kPackedInt4 (+ 8), kMxfp4 (e2m1): two elements a byte, low nibble first
  std::int64_t row_bytes = 0;  ///< of values
  std::int64_t scales =
      0;  ///< [scale_rows, scale_columns]; kBlockFp8: float32, kPackedInt4: as stored, kMxfp4: e8m0 bytes
  std::int64_t scale_rows =
      0;  ///< over all stacked matrices; kBlockFp8: one for each block of rows, else one for each row
  std::int64_t scale_columns = 0;  ///< one for each block_columns columns
  std::int64_t scale_bytes = 0;    ///< of one scale
};

/// The experts of a quantised checkpoint. gpt-oss's interleaved rows are put in order: gate first, then up.
struct PackedExperts {
  QuantizationMethod method = QuantizationMethod::kNone;  ///< kNone: this layer has no packed experts
  ScaleType scale_type = ScaleType::kBfloat16;            ///< kPackedInt4
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
  std::int64_t expert_bytes = 0;  ///< from one expert to the next
  std::int64_t bytes = 0;         ///< of all
  PackedMatrix gate_up;
  PackedMatrix down;
};

/// Where the parts of a layer begin; -1 where it has no such part.
struct LayerLayout {
  // Vectors, in LayerView::vectors. Values are rounded to the compute type where the published model holds them so.
  std::int64_t input_norm = -1;
  std::int64_t attention_output_norm = -1;  ///< sandwich norms: of attention's output, before it is added
  std::int64_t mlp_norm = -1;               ///< before the MLP or the experts
  std::int64_t mlp_output_norm = -1;        ///< sandwich norms: of the MLP's output, before it is added
  std::int64_t q_norm = -1;                 ///< [head_dim]
  std::int64_t k_norm = -1;
  std::int64_t q_a_norm = -1;   ///< MLA: [q_lora_rank]
  std::int64_t kv_a_norm = -1;  ///< MLA: [kv_lora_rank]
  std::int64_t sinks = -1;      ///< [heads]
  std::int64_t qkv_bias = -1;   ///< [qkv_width]
  std::int64_t o_bias = -1;
  std::int64_t gate_up_bias = -1;  ///< dense MLP, [2 * intermediate]
  std::int64_t down_bias = -1;
  std::int64_t router_bias = -1;           ///< [experts], added to the logits
  std::int64_t correction_bias = -1;       ///< [experts], for the choice alone; always as stored in float32
  std::int64_t router = -1;                ///< [experts, hidden]; kSigmoidBiased: always as stored in float32
  std::int64_t experts_gate_up_bias = -1;  ///< [experts][2 * expert_intermediate], gate first
  std::int64_t experts_down_bias = -1;     ///< [experts][hidden]
  std::int64_t vectors_total = 0;

  // Matrices, in LayerView::matrices.
  std::int64_t qkv = -1;              ///< [qkv_width, hidden]
  std::int64_t q_a = -1;              ///< MLA: [q_lora_rank, hidden]; -1 where q comes directly
  std::int64_t q_b = -1;              ///< MLA: [heads * head_dim, q_lora_rank or hidden]
  std::int64_t kv_a = -1;             ///< MLA: [kv_lora_rank + rope, hidden]
  std::int64_t kv_b = -1;             ///< MLA: [heads * (nope + v), kv_lora_rank]
  std::int64_t o = -1;                ///< [hidden, heads * width of values]
  std::int64_t gate_up = -1;          ///< dense MLP: [2 * intermediate, hidden], gate first
  std::int64_t down = -1;             ///< dense MLP: [hidden, intermediate]
  std::int64_t shared_gate_up = -1;   ///< shared experts as one MLP: [2 * width, hidden]
  std::int64_t shared_down = -1;      ///< [hidden, width]
  std::int64_t experts_gate_up = -1;  ///< [experts][2 * expert_intermediate, hidden], gate first; -1 where packed
  std::int64_t experts_down = -1;     ///< [experts][hidden, expert_intermediate]; -1 where packed
  std::int64_t matrices_total = 0;

  std::int64_t expert_gate_up_elements = 0;  ///< of one expert
  std::int64_t expert_down_elements = 0;
  PackedExperts packed;  ///< in LayerView::packed

  bool has_experts() const { return router >= 0; }
};

/// The layout of one layer, from 0. Layers of a kind (dense, with experts) share it.
LayerLayout LayoutOfLayer(const ModelConfig& config, std::int64_t layer);

/// What the `part`-th of `parts` holds of a layer's matrices (elements) and packed experts (bytes). The parts follow each
/// other without a gap; each begins at a multiple of 64, the last ones may be empty.
struct LayerPart {
  std::int64_t first_matrix = 0;
  std::int64_t matrices_count = 0;
  std::int64_t first_packed = 0;
  std::int64_t packed_bytes = 0;
};
LayerPart PartOf(const LayerLayout& layout, std::int64_t part, std::int64_t parts);

/// True where a layer has routed experts in place of the dense MLP.
bool LayerHasExperts(const ModelConfig& config, std::int64_t layer);

}  // namespace draftmill
