// The decoder on the CPU, layer-major: a block of packed tokens goes through layer l before any of it enters layer l + 1.
//
//   std::unique_ptr<BlockDecoder> decoder = MakeBlockDecoder<float, Bf16>(config, std::move(store), options);
//   DRAFTMILL_RETURN_IF_ERROR(decoder->Run(block, should_stop));     // states stand where the tiles' `capture` points
//
// T is the type of the products' operands, W that of the stored weights: <Bf16, Bf16> where the processor multiplies
// bfloat16, <float, Bf16> elsewhere (the same values in float32, with a rounding to bfloat16 wherever the published model
// has one, so at least as exact), <float, float> for float32 models.
//
// Dense work is cut into tiles of at most kTileRows rows that never cross a batch; attention into (sequence, kv head,
// range of queries). Tiles and ranges are tasks of one arena; each computes the same products whatever the number of
// threads, so the bits do not depend on it. Between two layers there are two barriers: attention of layer l (beside it
// the weights of layer l + 1 are widened), then the rest of l with the head of l + 1.
//
// Run is called from one thread at a time. It may throw what torch or the allocator throws; the extractor catches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/decoder_cpu.h"
#include "stages/extract/cpu_memory.h"
#include "stages/extract/model_config.h"
#include "stages/extract/weight_store.h"

namespace draftmill {

/// A sample's tokens within the block.
struct PackedSequence {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
};

/// At most kTileRows consecutive tokens of one batch.
struct PackedTile {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  /// Where the captured layers of the tile's first token go: [rows, layers, hidden]. One of the two is set.
  Bf16* capture = nullptr;
  float* capture_float = nullptr;
};

/// A block of tokens. Offsets count all of the block's batches, also those that are not computed, so that every product
/// has the same operands at the same alignment in every run.
struct PackedBlock {
  std::int64_t tokens = 0;
  std::vector<std::int32_t> input_ids;   ///< [tokens], each below the embedding's rows
  std::vector<std::int32_t> positions;   ///< [tokens], from 0 in each sample
  std::vector<PackedSequence> sequences; ///< that are computed
  std::vector<PackedTile> tiles;         ///< that are computed
};

struct DecoderOptions {
  int threads = 1;
  bool fused_norms = false;              ///< numerics: fused
  std::vector<std::int32_t> layers;      ///< captured x_k, ascending
};

class BlockDecoder {
 public:
  virtual ~BlockDecoder() = default;
  /// Computes the block's states. `should_stop` is asked between layers; true ends the call with kCancelled.
  virtual Status Run(const PackedBlock& block, const std::function<bool()>& should_stop) = 0;
};

template <typename T, typename W>
std::unique_ptr<BlockDecoder> MakeBlockDecoder(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store,
                                               DecoderOptions options);

}  // namespace draftmill
