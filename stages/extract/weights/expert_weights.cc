#include "stages/extract/weights/expert_weights.h"

#include "stages/extract/weights/quantised_values.h"

namespace draftmill {
namespace {

template <typename W>
void ExpandMatrix(const PackedExperts& packed, const PackedMatrix& matrix, const std::byte* expert, W* out) {
  const std::byte* const values = expert + matrix.values;
  const std::byte* const scales = expert + matrix.scales;
  const std::int64_t stack_rows = matrix.rows / matrix.stacked;
  const std::int64_t stack_scale_rows = matrix.scale_rows / matrix.stacked;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t scale_row = row / stack_rows * stack_scale_rows + row % stack_rows / packed.block_rows;
    const std::byte* const row_values = values + row * matrix.row_bytes;
    // Parts begin at multiples of 64 bytes and rows of scales at multiples of their size.
    const std::byte* const row_scales = scales + scale_row * matrix.scale_columns * matrix.scale_bytes;
    W* const to = out + row * matrix.columns;
    switch (packed.method) {
      case QuantizationMethod::kNone: break;
      case QuantizationMethod::kBlockFp8:
        ExpandFp8(row_values, reinterpret_cast<const float*>(row_scales), packed.block_columns, 0, matrix.columns, to);
        break;
      case QuantizationMethod::kPackedInt4:
        ExpandInt4(row_values, row_scales, packed.scale_type, packed.block_columns, 0, matrix.columns, to);
        break;
      case QuantizationMethod::kMxfp4:
        ExpandMxfp4(row_values, reinterpret_cast<const std::uint8_t*>(row_scales), packed.block_columns, 0,
                    matrix.columns, to);
        break;
    }
  }
}

}  // namespace

std::int64_t ExpertScratchElements(const LayerLayout& layout) {
  const bool packed = layout.packed.method != QuantizationMethod::kNone;
  return packed ? layout.expert_gate_up_elements + layout.expert_down_elements : 0;
}

template <typename W>
ExpertView<W> ExpertOf(const LayerView<W>& view, std::int64_t expert, W* scratch) {
  const LayerLayout& layout = *view.layout;
  if (layout.packed.method == QuantizationMethod::kNone) {
    return {view.matrices + layout.experts_gate_up + expert * layout.expert_gate_up_elements,
            view.matrices + layout.experts_down + expert * layout.expert_down_elements};
  }
  const std::byte* const bytes = view.packed + expert * layout.packed.expert_bytes;
  W* const down = scratch + layout.expert_gate_up_elements;
  ExpandMatrix(layout.packed, layout.packed.gate_up, bytes, scratch);
  ExpandMatrix(layout.packed, layout.packed.down, bytes, down);
  return {scratch, down};
}

template ExpertView<float> ExpertOf(const LayerView<float>&, std::int64_t, float*);
template ExpertView<Bf16> ExpertOf(const LayerView<Bf16>&, std::int64_t, Bf16*);

}  // namespace draftmill
