#include "stages/extract/model/layer_layout.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "stages/extract/model/layer_tensors.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPartAlignment = 64;

std::int64_t Aligned(std::int64_t count) { return (count + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }

/// Parts of a layout with their sizes in elements, in the order of their first tensors.
struct Parts {
  std::vector<std::pair<std::int64_t LayerLayout::*, std::int64_t>> sizes;

  void Extend(const LayerTensor& tensor) {
    const std::int64_t end = tensor.first + tensor.elements();
    const auto found =
        std::find_if(sizes.begin(), sizes.end(), [&](const auto& part) { return part.first == tensor.part; });
    if (found == sizes.end()) {
      sizes.emplace_back(tensor.part, end);
    } else {
      found->second = std::max(found->second, end);
    }
  }

  /// Gives each part its place and returns the end.
  std::int64_t Place(LayerLayout& layout) const {
    std::int64_t next = 0;
    for (const auto& [part, size] : sizes) {
      layout.*part = next;
      next += Aligned(size);
    }
    return next;
  }
};

std::int64_t CeilDiv(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

PackedMatrix LayOutMatrix(const Quantization& quantization, std::int64_t rows, std::int64_t columns,
                          std::int64_t stacked, std::int64_t& next) {
  PackedMatrix matrix;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.stacked = stacked;
  matrix.scale_rows = stacked * CeilDiv(rows / stacked, quantization.block_rows);
  matrix.scale_columns = CeilDiv(columns, quantization.block_columns);
  switch (quantization.method) {
    case QuantizationMethod::kNone: break;
    case QuantizationMethod::kBlockFp8:
      matrix.row_bytes = columns;
      matrix.scale_bytes = 4;
      break;
    case QuantizationMethod::kPackedInt4:
      matrix.row_bytes = 4 * CeilDiv(columns, 8);
      matrix.scale_bytes = quantization.int4_scale_bytes();
      break;
    case QuantizationMethod::kMxfp4:
      matrix.row_bytes = matrix.scale_columns * quantization.block_columns / 2;
      matrix.scale_bytes = 1;
      break;
  }
  matrix.values = next;
  next += Aligned(rows * matrix.row_bytes);
  matrix.scales = next;
  next += Aligned(matrix.scale_rows * matrix.scale_columns * matrix.scale_bytes);
  return matrix;
}

PackedExperts LayOutPacked(const ModelConfig& config) {
  const MixtureOfExperts& moe = *config.experts;
  PackedExperts packed;
  packed.method = config.quantization.method;
  packed.scale_type = config.quantization.scale_type;
  packed.block_rows = config.quantization.block_rows;
  packed.block_columns = config.quantization.block_columns;
  std::int64_t next = 0;
  packed.gate_up = LayOutMatrix(config.quantization, 2 * moe.expert_intermediate, config.hidden_size, 2, next);
  packed.down = LayOutMatrix(config.quantization, config.hidden_size, moe.expert_intermediate, 1, next);
  packed.expert_bytes = next;
  packed.bytes = next * moe.experts;
  return packed;
}

/// First and number of what the `part`-th of `parts` has of `total`.
std::pair<std::int64_t, std::int64_t> RangeOf(std::int64_t total, std::int64_t part, std::int64_t parts) {
  const std::int64_t each = Aligned((total + parts - 1) / parts);
  const std::int64_t first = std::min(total, part * each);
  return {first, std::min(total, first + each) - first};
}

}  // namespace

LayerLayout LayoutOfLayer(const ModelConfig& config, std::int64_t layer) {
  LayerLayout layout;
  Parts vectors;
  Parts matrices;
  bool packed = false;
  for (const LayerTensor& tensor : LayerTensors(config, layer)) {
    if (tensor.stays_packed) {
      packed = true;
      continue;
    }
    (tensor.is_matrix ? matrices : vectors).Extend(tensor);
  }
  layout.vectors_total = vectors.Place(layout);
  layout.matrices_total = matrices.Place(layout);
  if (!LayerHasExperts(config, layer)) return layout;
  layout.expert_down_elements = config.experts->expert_intermediate * config.hidden_size;
  layout.expert_gate_up_elements = 2 * layout.expert_down_elements;
  if (packed) layout.packed = LayOutPacked(config);
  return layout;
}

LayerPart PartOf(const LayerLayout& layout, std::int64_t part, std::int64_t parts) {
  LayerPart range;
  std::tie(range.first_matrix, range.matrices_count) = RangeOf(layout.matrices_total, part, parts);
  std::tie(range.first_packed, range.packed_bytes) = RangeOf(layout.packed.bytes, part, parts);
  return range;
}

}  // namespace draftmill
