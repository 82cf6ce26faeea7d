// A checkpoint's weights in memory, in the form in which the decoder uses them: one block of numbers per layer, q, k and v
// fused, gate and up fused.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(WeightStore<Bf16> store, WeightStore<Bf16>::Load(config, index, tensors, threads));
//
// T is the model's compute type (Bf16 or float): stored F16, F32 and BF16 tensors are converted while they are read, as
// transformers does for that dtype. Every byte read goes into the digest. Loading uses `threads` threads; a loaded store
// is constant and safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/aligned_buffer.h"
#include "stages/extract/layer_layout.h"
#include "stages/extract/model_config.h"
#include "stages/extract/weights_index.h"

namespace draftmill {

template <typename T>
class WeightStore {
 public:
  static Result<WeightStore> Load(const ModelConfig& config, const WeightsIndex& index, const CheckpointTensors& tensors,
                                  int threads);

  const T* embedding() const { return embedding_.data(); }
  const T* layer(std::int64_t index) const { return layers_[static_cast<std::size_t>(index)].data(); }
  const LayerLayout& layout() const { return layout_; }
  /// XXH3-128 of the parts' digests: embedding, each layer, final norm; over bytes as stored.
  const std::string& digest() const { return digest_; }

 private:
  LayerLayout layout_;
  AlignedBuffer<T> embedding_;
  std::vector<AlignedBuffer<T>> layers_;
  std::string digest_;
};

}  // namespace draftmill
