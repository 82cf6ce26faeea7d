// The routed experts of a layer, over a whole block: each expert's tokens are gathered and go through it together.
//
//   experts.Prepare(block.tokens);
//   experts.Route(tile, weights, normed);                                    // tiles: tasks of one barrier
//   experts.Run(arena, block, layer, layers);                                // not inside a task
//   experts.Join(tile, weights, branch);                                     // tiles: tasks of the next
//
// Which rows an expert gets follows from the block's tokens alone, so products have the same shapes whatever the number
// of threads. Experts run in waves that together have no more rows than the block has tokens, which bounds the memory
// for their results; a token's results are summed in float32 in the order of its experts. Shared experts are added by
// Join. An expert's weights are expanded and widened by the task that runs it.
#pragma once

#include <oneapi/tbb/enumerable_thread_specific.h>

#include <cstdint>
#include <vector>

#include "stages/extract/cpu/decoder_numerics.h"
#include "stages/extract/cpu/gated_mlp.h"
#include "stages/extract/cpu/worker_arena.h"
#include "stages/extract/packed_block.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/layer_weights.h"

namespace draftmill {

template <typename T, typename W>
class RoutedExperts {
 public:
  explicit RoutedExperts(const DecoderNumerics<T>& numerics) : numerics_(numerics) {}

  /// Makes room for a block. Does nothing for models without experts.
  void Prepare(std::int64_t tokens);
  /// Chooses the experts of a tile's rows and keeps the rows. `normed`: [max(rows, kMinProductRows), hidden].
  void Route(const PackedTile& tile, const LayerWeights<T>& weights, const T* normed);
  /// Runs the experts of a layer over all tiles of the block, which must have been routed.
  void Run(WorkerArena& arena, const PackedBlock& block, std::int64_t layer, const LayerWeightsOf<T, W>& layers);
  /// The layer's MLP output for a tile: routed and shared experts. [max(rows, kMinProductRows), hidden].
  void Join(const PackedTile& tile, const LayerWeights<T>& weights, T* out);

 private:
  struct Scratch {
    AlignedBuffer<float> logits;     ///< [kTileRows, experts]
    AlignedBuffer<float> wide_rows;  ///< [kTileRows, hidden]: what enters the router
    AlignedBuffer<float> scores;     ///< [2 * experts]
    AlignedBuffer<T> gathered;       ///< [kTileRows, hidden]
    AlignedBuffer<T> branch;         ///< [kTileRows, hidden]
    GatedMlpScratch<T> mlp;
    ExpertScratch<T, W> expert;
  };
  /// Consecutive experts whose rows are computed together.
  struct Wave {
    std::int32_t first_expert = 0;
    std::int32_t end_expert = 0;
  };

  const MixtureOfExperts& experts() const { return *numerics_.config.experts; }
  const float* Logits(const PackedTile& tile, const LayerWeights<T>& weights, const T* normed, Scratch& scratch) const;
  const float* AsFloat(const T* values, std::int64_t count, Scratch& scratch) const;
  void PlanSlots(const PackedBlock& block);
  std::vector<Wave> PlanWaves() const;
  std::int64_t RowsOf(std::int32_t expert) const {
    return first_slot_[static_cast<std::size_t>(expert) + 1] - first_slot_[static_cast<std::size_t>(expert)];
  }
  void RunExpert(std::int32_t expert, std::int64_t wave_slot, std::int64_t layer, const LayerWeightsOf<T, W>& layers);
  void AddWave(const PackedTile& tile, const Wave& wave);

  const DecoderNumerics<T>& numerics_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
  std::int64_t tokens_ = 0;
  AlignedBuffer<T> normed_;               ///< [tokens, hidden]
  AlignedBuffer<T> expert_rows_;          ///< [tokens, hidden]: results of a wave, a row for each slot
  AlignedBuffer<float> sums_;             ///< [tokens, hidden]
  std::vector<std::int32_t> chosen_;      ///< [tokens, top_k]
  std::vector<float> weights_;            ///< [tokens, top_k]
  std::vector<std::int32_t> slots_;       ///< [tokens, top_k]: where a choice stands when all are sorted by expert
  std::vector<std::int32_t> slot_token_;  ///< [slots]
  std::vector<std::int64_t> first_slot_;  ///< [experts + 1]
};

}  // namespace draftmill
