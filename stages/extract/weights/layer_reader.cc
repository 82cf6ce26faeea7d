#include "stages/extract/weights/layer_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stages/extract/model/layer_tensors.h"
#include "stages/extract/weights/quantised_values.h"

namespace draftmill {
namespace {

using Deliver = std::function<Status(std::int64_t first_byte, std::span<const std::byte> bytes)>;

void Assign(float value, float& out) { out = value; }
void Assign(float value, Bf16& out) { out = ToBf16(value); }

/// Where element `index` of a tensor whose rows or columns are not in the engine's order belongs.
std::int64_t PlaceOf(const LayerTensor& tensor, std::int64_t index) {
  const std::int64_t outputs = tensor.shape.back();
  const std::int64_t inputs = tensor.shape.size() == 3 ? tensor.shape[1] : 1;
  const std::int64_t expert = index / (inputs * outputs);
  const std::int64_t input = index % (inputs * outputs) / outputs;
  const std::int64_t output = index % outputs;
  const bool paired = tensor.order != TensorOrder::kTransposed;
  const std::int64_t row = paired ? output % 2 * (outputs / 2) + output / 2 : output;
  return (expert * outputs + row) * inputs + input;
}

/// Rows of bytes that go to rows of an expert; a piece may begin and end within a row.
struct RowTarget {
  std::byte* base = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 0;          ///< of one expert
  std::int64_t expert_bytes = 0;  ///< from one expert to the next
  bool paired = false;            ///< rows are gate, up, gate, up, ...

  Status Put(std::int64_t first_byte, std::span<const std::byte> bytes) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const std::int64_t at = first_byte + static_cast<std::int64_t>(done);
      const std::int64_t row = at / row_bytes % rows;
      const std::int64_t within = at % row_bytes;
      const auto count = std::min(static_cast<std::size_t>(row_bytes - within), bytes.size() - done);
      const std::int64_t place = paired ? row % 2 * (rows / 2) + row / 2 : row;
      std::memcpy(base + at / (row_bytes * rows) * expert_bytes + place * row_bytes + within, bytes.data() + done,
                  count);
      done += count;
    }
    return OkStatus();
  }
};

/// The scales of a matrix that is expanded while it is read.
struct MatrixScales {
  std::vector<float> of_blocks;      ///< kBlockFp8
  std::vector<std::byte> of_groups;  ///< kPackedInt4, as stored
};

/// Collects the reads of one layer: scales first, since values are expanded with them.
template <typename W>
class LayerPlan {
 public:
  LayerPlan(const ModelFolder& model, std::int64_t layer, LayerBlock<W>& block)
      : config_(model.config),
        tensors_(model.tensors),
        prefix_("layers." + std::to_string(layer) + "."),
        block_(block) {
    for (const LayerTensor& tensor : LayerTensors(config_, layer)) Add(tensor);
  }

  Result<Hash128> Run(WeightFiles& files) {
    std::vector<Hash128> digests(roles_.size());
    for (const bool scales : {true, false}) DRAFTMILL_RETURN_IF_ERROR(RunPhase(files, scales, digests));
    StreamingHash all;
    for (const Hash128& digest : digests) all.Update(std::as_bytes(std::span(digest.bytes)));
    return all.Digest128();
  }

 private:
  static bool IsScale(TensorRole role) {
    return role == TensorRole::kFp8Scales || role == TensorRole::kInt4Scales || role == TensorRole::kInt4Shape;
  }

  Status RunPhase(WeightFiles& files, bool scales, std::vector<Hash128>& digests) {
    std::vector<TensorRead> reads;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (IsScale(roles_[i]) != scales) continue;
      reads.push_back(reads_[i]);
      places.push_back(i);
    }
    std::vector<Hash128> of_phase;
    DRAFTMILL_RETURN_IF_ERROR(files.ReadTensors(reads, of_phase));
    for (std::size_t i = 0; i < places.size(); ++i) digests[places[i]] = of_phase[i];
    return OkStatus();
  }

  void Add(const LayerTensor& tensor) {
    MatrixScales* scales = nullptr;
    if (tensor.quantised && !tensor.stays_packed) scales = &scales_.emplace_back();
    for (const StoredTensor& stored : StoredTensors(config_.quantization, tensor)) {
      const TensorPlace& place = tensors_.Get(prefix_ + stored.name);
      roles_.push_back(stored.role);
      reads_.push_back({&place, DeliveryOf(tensor, stored, place, scales)});
    }
  }

  Deliver DeliveryOf(const LayerTensor& tensor, const StoredTensor& stored, const TensorPlace& place,
                     MatrixScales* scales) {
    switch (stored.role) {
      case TensorRole::kPlain: return tensor.is_matrix ? PlainMatrix(tensor, place) : PlainVector(tensor, place);
      case TensorRole::kInt4Shape: return ShapeCheck(tensor, place);
      case TensorRole::kFp8Scales:
        return scales != nullptr ? BlockScales(place, *scales) : PackedBlockScales(tensor, place);
      case TensorRole::kInt4Scales:
        return scales != nullptr ? GroupScales(place, *scales) : PackedRows(tensor, place, true);
      case TensorRole::kFp8Values:
        return scales != nullptr ? ExpandedFp8(tensor, *scales) : PackedRows(tensor, place, false);
      case TensorRole::kInt4Values:
        return scales != nullptr ? ExpandedInt4(tensor, *scales) : PackedRows(tensor, place, false);
      case TensorRole::kMxfp4Scales: return PackedRows(tensor, place, true);
      case TensorRole::kMxfp4Values: return PackedRows(tensor, place, false);
    }
    return {};
  }

  W* MatrixOf(const LayerTensor& tensor) { return block_.matrices.data() + block_.layout.*tensor.part + tensor.first; }

  Deliver PlainMatrix(const LayerTensor& tensor, const TensorPlace& place) {
    W* const out = MatrixOf(tensor);
    const safetensors::Dtype dtype = place.info.dtype;
    const std::int64_t width = safetensors::DtypeBits(dtype) / 8;
    return [tensor, out, dtype, width](std::int64_t first_byte, std::span<const std::byte> bytes) {
      const std::int64_t first = first_byte / width;
      const std::int64_t count = static_cast<std::int64_t>(bytes.size()) / width;
      if (tensor.order == TensorOrder::kAsStored) {
        ConvertElements(dtype, bytes.data(), out + first, count);
        return OkStatus();
      }
      std::vector<W> values(static_cast<std::size_t>(count));
      ConvertElements(dtype, bytes.data(), values.data(), count);
      for (std::int64_t i = 0; i < count; ++i) out[PlaceOf(tensor, first + i)] = values[static_cast<std::size_t>(i)];
      return OkStatus();
    };
  }

  Deliver PlainVector(const LayerTensor& tensor, const TensorPlace& place) {
    float* const out = block_.vectors.data() + block_.layout.*tensor.part + tensor.first;
    const safetensors::Dtype dtype = place.info.dtype;
    const std::int64_t width = safetensors::DtypeBits(dtype) / 8;
    const bool rounds = std::is_same_v<W, Bf16> && !tensor.keeps_float32;
    return [tensor, out, dtype, width, rounds](std::int64_t first_byte, std::span<const std::byte> bytes) {
      const std::int64_t first = first_byte / width;
      std::vector<float> values(bytes.size() / static_cast<std::size_t>(width));
      ConvertElements(dtype, bytes.data(), values.data(), static_cast<std::int64_t>(values.size()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t index = first + static_cast<std::int64_t>(i);
        out[tensor.order == TensorOrder::kAsStored ? index : PlaceOf(tensor, index)] =
            rounds ? RoundToBf16(values[i]) : values[i];
      }
      return OkStatus();
    };
  }

  /// weight_shape must say what config.json says.
  static Deliver ShapeCheck(const LayerTensor& tensor, const TensorPlace& place) {
    return [shape = tensor.shape, &place](std::int64_t, std::span<const std::byte> bytes) {
      const std::size_t width = bytes.size() / 2;
      for (std::size_t i = 0; i < 2; ++i) {
        std::int64_t extent = 0;
        std::memcpy(&extent, bytes.data() + i * width, width);
        if (extent != shape[i]) {
          return InvalidInput("the tensor " + place.info.name + " says " + std::to_string(extent) +
                              " where the matrix has " + std::to_string(shape[i]) +
                              "; config.json and the weights do not belong together");
        }
      }
      return OkStatus();
    };
  }

  // ---- matrices that are expanded while they are read ----

  Deliver BlockScales(const TensorPlace& place, MatrixScales& scales) {
    scales.of_blocks.resize(static_cast<std::size_t>(place.info.elements()));
    return Floats(place, scales.of_blocks.data());
  }

  static Deliver Floats(const TensorPlace& place, float* out) {
    const safetensors::Dtype dtype = place.info.dtype;
    const std::int64_t width = safetensors::DtypeBits(dtype) / 8;
    return [out, dtype, width](std::int64_t first_byte, std::span<const std::byte> bytes) {
      ConvertElements(dtype, bytes.data(), out + first_byte / width, static_cast<std::int64_t>(bytes.size()) / width);
      return OkStatus();
    };
  }

  Deliver GroupScales(const TensorPlace& place, MatrixScales& scales) {
    scales.of_groups.resize(static_cast<std::size_t>(place.info.bytes));
    return [out = scales.of_groups.data()](std::int64_t first_byte, std::span<const std::byte> bytes) {
      std::memcpy(out + first_byte, bytes.data(), bytes.size());
      return OkStatus();
    };
  }

  /// Cuts bytes into stretches of rows: expand(row, first column, elements, bytes).
  template <typename Expand>
  static Deliver ByRows(std::int64_t row_bytes, std::int64_t columns, std::int64_t elements_per_byte, Expand expand) {
    return [=](std::int64_t first_byte, std::span<const std::byte> bytes) {
      for (std::size_t done = 0; done < bytes.size();) {
        const std::int64_t at = first_byte + static_cast<std::int64_t>(done);
        const std::int64_t column = at % row_bytes * elements_per_byte;
        const auto count = std::min(static_cast<std::size_t>(row_bytes - at % row_bytes), bytes.size() - done);
        const std::int64_t elements = std::min(static_cast<std::int64_t>(count) * elements_per_byte, columns - column);
        if (elements > 0) expand(at / row_bytes, column, elements, bytes.data() + done);
        done += count;
      }
      return OkStatus();
    };
  }

  Deliver ExpandedFp8(const LayerTensor& tensor, const MatrixScales& scales) {
    const std::int64_t columns = tensor.shape[1];
    const std::int64_t block_rows = config_.quantization.block_rows;
    const std::int64_t block = config_.quantization.block_columns;
    return ByRows(columns, columns, 1,
                  [=, out = MatrixOf(tensor), from = &scales.of_blocks](std::int64_t row, std::int64_t column,
                                                                        std::int64_t count, const std::byte* bytes) {
                    const float* const row_scales = from->data() + row / block_rows * ((columns + block - 1) / block);
                    ExpandFp8(bytes, row_scales, block, column, count, out + row * columns + column);
                  });
  }

  Deliver ExpandedInt4(const LayerTensor& tensor, const MatrixScales& scales) {
    const std::int64_t columns = tensor.shape[1];
    const Quantization& quantization = config_.quantization;
    const std::int64_t group = quantization.block_columns;
    const std::int64_t scale_row_bytes = (columns + group - 1) / group * quantization.int4_scale_bytes();
    return ByRows((columns + 7) / 8 * 4, columns, 2,
                  [=, out = MatrixOf(tensor), from = &scales.of_groups, type = quantization.scale_type](
                      std::int64_t row, std::int64_t column, std::int64_t count, const std::byte* bytes) {
                    ExpandInt4(bytes, from->data() + row * scale_row_bytes, type, group, column, count,
                               out + row * columns + column);
                  });
  }

  // ---- experts that stay packed ----

  static bool IsDown(const LayerTensor& tensor) { return tensor.part == &LayerLayout::experts_down; }
  const PackedMatrix& PackedOf(const LayerTensor& tensor) const {
    return IsDown(tensor) ? block_.layout.packed.down : block_.layout.packed.gate_up;
  }
  /// 1 for the second of two stacked matrices: up below gate.
  static std::int64_t StackPlace(const LayerTensor& tensor) {
    return tensor.expert >= 0 && tensor.name.ends_with("up_proj.weight") ? 1 : 0;
  }

  Deliver PackedRows(const LayerTensor& tensor, const TensorPlace&, bool scales) {
    const PackedMatrix& matrix = PackedOf(tensor);
    const std::int64_t rows = scales ? matrix.scale_rows : matrix.rows;
    RowTarget target;
    target.row_bytes = scales ? matrix.scale_columns * matrix.scale_bytes : matrix.row_bytes;
    target.rows = tensor.expert >= 0 ? rows / matrix.stacked : rows;
    target.expert_bytes = block_.layout.packed.expert_bytes;
    target.paired = tensor.order == TensorOrder::kPairedColumns;
    target.base = block_.packed.data() + std::max<std::int64_t>(tensor.expert, 0) * target.expert_bytes +
                  (scales ? matrix.scales : matrix.values) + StackPlace(tensor) * target.rows * target.row_bytes;
    return
        [target](std::int64_t first_byte, std::span<const std::byte> bytes) { return target.Put(first_byte, bytes); };
  }

  Deliver PackedBlockScales(const LayerTensor& tensor, const TensorPlace& place) {
    const PackedMatrix& matrix = PackedOf(tensor);
    std::byte* const base = block_.packed.data() + tensor.expert * block_.layout.packed.expert_bytes + matrix.scales;
    // Every part of a packed expert begins at a multiple of 64 bytes, the stacked half at a whole number of floats.
    return Floats(place, reinterpret_cast<float*>(base) +
                             StackPlace(tensor) * matrix.scale_rows / matrix.stacked * matrix.scale_columns);
  }

  const ModelConfig& config_;
  const CheckpointTensors& tensors_;
  const std::string prefix_;
  LayerBlock<W>& block_;
  std::deque<MatrixScales> scales_;
  std::vector<TensorRole> roles_;
  std::vector<TensorRead> reads_;
};

}  // namespace

template <typename W>
void ConvertElements(safetensors::Dtype dtype, const std::byte* in, W* out, std::int64_t count) {
  if (std::is_same_v<W, Bf16> && dtype == safetensors::Dtype::kBf16) {
    std::memcpy(static_cast<void*>(out), in, static_cast<std::size_t>(count) * 2);
    return;
  }
  if (dtype == safetensors::Dtype::kF32) {
    for (std::int64_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, in + i * 4, 4);
      Assign(value, out[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in + i * 2, 2);
    Assign(dtype == safetensors::Dtype::kF16 ? HalfToFloat(bits) : ToFloat(Bf16{bits}), out[i]);
  }
}

template <typename W>
void LayerBlock<W>::Prepare(const LayerLayout& of) {
  layout = of;
  vectors.Grow(of.vectors_total);
  matrices.Grow(of.matrices_total);
  packed.Grow(of.packed.bytes);
}

template <typename W>
Result<Hash128> LayerReader<W>::Read(std::int64_t layer, LayerBlock<W>& block) {
  block.Prepare(LayoutOfLayer(model_.config, layer));
  return LayerPlan<W>(model_, layer, block).Run(files_);
}

template <typename W>
Result<Hash128> LayerReader<W>::ReadMatrix(std::string_view name, W* out) {
  const TensorPlace& place = model_.tensors.Get(name);
  const safetensors::Dtype dtype = place.info.dtype;
  const std::int64_t width = safetensors::DtypeBits(dtype) / 8;
  TensorRead read{&place, {}};
  if (out != nullptr) {
    read.deliver = [=](std::int64_t first_byte, std::span<const std::byte> bytes) {
      ConvertElements(dtype, bytes.data(), out + first_byte / width, static_cast<std::int64_t>(bytes.size()) / width);
      return OkStatus();
    };
  }
  std::vector<Hash128> digests;
  DRAFTMILL_RETURN_IF_ERROR(files_.ReadTensors({&read, 1}, digests));
  return digests[0];
}

template <typename W>
Result<Hash128> LayerReader<W>::ReadVector(std::string_view name, float* out) {
  std::vector<W> values(static_cast<std::size_t>(model_.tensors.Get(name).info.elements()));
  DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, ReadMatrix(name, values.data()));
  std::transform(values.begin(), values.end(), out, [](W value) {
    if constexpr (std::is_same_v<W, Bf16>) {
      return ToFloat(value);
    } else {
      return value;
    }
  });
  return digest;
}

template struct LayerBlock<float>;
template struct LayerBlock<Bf16>;
template class LayerReader<float>;
template class LayerReader<Bf16>;
template void ConvertElements(safetensors::Dtype, const std::byte*, float*, std::int64_t);
template void ConvertElements(safetensors::Dtype, const std::byte*, Bf16*, std::int64_t);

}  // namespace draftmill
