// The decoder on the CPU, layer-major: a block of packed tokens goes through layer l before any of it enters layer l
// + 1.
//
//   std::unique_ptr<BlockDecoder> decoder = MakeBlockDecoder<float, Bf16>(config, std::move(store), options);
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Run(block, should_stop));     // states stand where the tiles' `capture` points
//
// T is the type of the products' operands, W that of the stored weights: <Bf16, Bf16> where the processor multiplies
// bfloat16, <float, Bf16> elsewhere (the same values in float32, with a rounding to bfloat16 wherever the published
// model has one, so at least as exact), <float, float> for float32 models.
//
// Dense work is cut into tiles of at most kTileRows rows that never cross a batch; attention into (sequence, kv head,
// range of queries); routed experts into experts. All are tasks of one arena; each computes the same products whatever
// the number of threads, so the bits do not depend on it. Between two layers there are two barriers: attention of layer l
// (beside it the weights that come next are widened), then the rest of l with the head of l + 1. Layers with routed
// experts have more, since an expert takes its tokens from the whole block: there every batch of the block is computed,
// wanted or not.
//
// Run is called from one thread at a time. It may throw what torch or the allocator throws; the extractor catches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "stages/extract/cpu/head_reading.h"
#include "stages/extract/model/model_config.h"
#include "stages/extract/packed_block.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {

struct DecoderOptions {
  int threads = 1;
  bool fused_norms = false;          ///< numerics: fused
  std::vector<std::int32_t> layers;  ///< captured x_k, ascending
};

class BlockDecoder {
 public:
  virtual ~BlockDecoder() = default;
  /// Computes the block's states. `should_stop` is asked between layers; true ends the call with kCancelled.
  virtual Status Run(const PackedBlock& block, const std::function<bool()>& should_stop) = 0;
  /// The final norm and the head of the model; valid as long as the decoder.
  virtual ModelHead head() = 0;
};

template <typename T, typename W>
std::unique_ptr<BlockDecoder> MakeBlockDecoder(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store,
                                               DecoderOptions options);

}  // namespace draftmill
