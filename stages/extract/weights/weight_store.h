// A checkpoint's weights in the form in which the decoder uses them, one layer at a time, wherever they live.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto store, WeightStore<Bf16>::Open(model, options));
//   DRAFTMILL_ASSIGN_OR_RETURN(LayerView<Bf16> view, store->Acquire(layer));
//   Multiply(x, view.matrices + view.layout->qkv, ...);
//   store->Release(layer);
//
// Layers are asked for in ascending order, over and over; at most kHeldLayers are held at a time. The view is valid until
// its Release. With the policy `resident` all layers were read by Open; with `streamed` each is read when its turn comes,
// the next in the background while this one computes, and Acquire waits for it. The values are the same.
//
// W is the model's compute type (Bf16 or float): stored F16, F32 and BF16 tensors are converted while they are read, as
// transformers does for that dtype. Acquire and Release are called from one thread; views, EmbeddingRows and HeadRows are
// safe from any thread. Errors: kIo for the disk, kInvalidInput where a file changed since its header was read or since it
// was read last, kOutOfMemory naming limits.memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "stages/extract/memory/auto_sizes.h"
#include "stages/extract/model/layer_layout.h"
#include "stages/extract/model/model_folder.h"

namespace draftmill {

/// A layer's weights while they are held.
template <typename W>
struct LayerView {
  const LayerLayout* layout = nullptr;
  const float* vectors = nullptr;     ///< norms, biases, sinks; begins at a page
  const W* matrices = nullptr;        ///< begins at a page
  const std::byte* packed = nullptr;  ///< experts of a quantised checkpoint (expert_weights.h); begins at a page
};

template <typename W>
class WeightStore {
 public:
  /// Reads every weight once: for the digest, and to keep what the policy keeps in memory. The model's tensors were
  /// checked before, so none is missing or misshapen.
  static Result<std::unique_ptr<WeightStore>> Open(const ModelFolder& model, const WeightStoreOptions& options);
  virtual ~WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  /// The weights of a layer, from 0.
  virtual Result<LayerView<W>> Acquire(std::int64_t layer) = 0;
  virtual void Release(std::int64_t layer) = 0;

  /// The embedding's rows of these ids, each below the vocabulary's size: rows [ids, hidden].
  virtual Status EmbeddingRows(std::span<const std::int32_t> ids, W* rows) = 0;
  /// Rows `first` .. `first + count - 1` of the head, read from the file: lm_head, or the embedding where there is none.
  virtual Status HeadRows(std::int64_t first, std::int64_t count, W* rows) = 0;
  /// The weight of the final norm, [hidden].
  virtual const float* final_norm() const = 0;
  /// XXH3-128 of the parts' digests: embedding, each layer, final norm; over bytes as stored, whatever the policy.
  virtual const std::string& digest() const = 0;

 protected:
  WeightStore() = default;
};

}  // namespace draftmill
