// Reads one layer of a checkpoint into memory: converts, puts rows in order, expands or keeps what is quantised.
//
//   LayerReader<Bf16> reader(model, *files);
//   LayerBlock<Bf16> block;
//   DRAFTMILL_ASSIGN_OR_RETURN(const Hash128 digest, reader.Read(layer, block));
//
// The experts of quantised checkpoints stay packed; every other quantised matrix is expanded while it is read. A reader is
// used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/model/layer_layout.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/weight_files.h"

namespace draftmill {

/// One layer in memory. Buffers grow to the largest layer that was read into them.
template <typename W>
struct LayerBlock {
  LayerLayout layout;
  AlignedBuffer<float> vectors;
  AlignedBuffer<W> matrices;
  AlignedBuffer<std::byte> packed;

  /// Makes room for a layer.
  void Prepare(const LayerLayout& of);
};

template <typename W>
class LayerReader {
 public:
  /// Both must outlive the reader.
  LayerReader(const ModelFolder& model, WeightFiles& files) : model_(model), files_(files) {}

  /// Reads a layer. Returns XXH3-128 over its tensors' digests, in the order of LayerTensors and StoredTensors.
  Result<Hash128> Read(std::int64_t layer, LayerBlock<W>& block);

  /// Reads a tensor of plain numbers that belongs to no layer, row-major as stored. `out` may be null: hashed only.
  Result<Hash128> ReadMatrix(std::string_view name, W* out);
  Result<Hash128> ReadVector(std::string_view name, float* out);

 private:
  const ModelFolder& model_;
  WeightFiles& files_;
};

/// Converts stored BF16, F16 or F32 elements as transformers does for the compute type W.
template <typename W>
void ConvertElements(safetensors::Dtype dtype, const std::byte* in, W* out, std::int64_t count);

}  // namespace draftmill
