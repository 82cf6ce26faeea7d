// Attention of the CPU decoder: from normed rows to rotated q, k and v, then softmax over blocks of keys.
//
//   attention.Prepare(block);
//   attention.Project(tile, layer, weights, normed);                 // tiles: tasks of one barrier
//   for (task : attention.tasks()) attention.Attend(task, layer, weights);   // tasks of the next
//   attention.Output(tile, weights, branch);
//
// Grouped heads are one product: the queries of a group's heads stand side by side. Scores exist for kQueryBlock
// queries and kKeyBlock keys at a time, so memory does not grow with the square of a sequence. Latent attention (MLA)
// is computed in its expanded form, in which every head has keys and values of its own. All of it is float32 but for
// the projections' operands. Prepare comes from one thread; the others from any, each on its own tile or task.
#pragma once

#include <oneapi/tbb/enumerable_thread_specific.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "stages/extract/cpu/decoder_numerics.h"
#include "stages/extract/cpu/rotary_table.h"
#include "stages/extract/packed_block.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/layer_weights.h"

namespace draftmill {

/// A range of one sequence's queries for one kv head.
struct AttentionTask {
  PackedSequence sequence;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0;
  std::int64_t end_query = 0;
};

template <typename T>
class Attention {
 public:
  explicit Attention(const DecoderNumerics<T>& numerics);

  /// Makes room for the block and cuts its work.
  void Prepare(const PackedBlock& block);
  /// q, k and v of a tile. `normed`: [max(rows, kMinProductRows), hidden].
  void Project(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights, const T* normed);
  /// The dearest first.
  const std::vector<AttentionTask>& tasks() const { return tasks_; }
  void Attend(const AttentionTask& task, std::int64_t layer, const LayerWeights<T>& weights);
  /// The output projection of a tile: [max(rows, kMinProductRows), hidden].
  void Output(const PackedTile& tile, const LayerWeights<T>& weights, T* out) const;

 private:
  struct Scratch {
    AlignedBuffer<T> qkv;            ///< [kTileRows, width]; q of MLA
    AlignedBuffer<T> latent;         ///< MLA: [kTileRows, q_lora_rank or kv_lora_rank + rope]
    AlignedBuffer<T> normed_latent;  ///< MLA: [kTileRows, q_lora_rank or kv_lora_rank]
    AlignedBuffer<T> kv;             ///< MLA: [kTileRows, heads * (nope + v)]
    AlignedBuffer<float> scores;     ///< [rows, kKeyBlock]
    AlignedBuffer<float> values;     ///< [rows, v_dim]
    AlignedBuffer<float> row_state;  ///< maximum, sum, rescale: 3 x [rows]
  };
  /// The running maxima and sums of a block of queries.
  struct RowState {
    float* maximum = nullptr;
    float* sum = nullptr;
    float* rescale = nullptr;
  };
  /// Cosines and sines for one kind of layer, and the row of each token of the block.
  struct Rotary {
    Rotary(const RopeConfig& rope, bool rounds) : dims(rope.rotary_dims), table(rope, rounds) {}
    std::int64_t dims;
    RotaryTable table;
    std::vector<std::int32_t> rows;
  };

  void CutTasks(const PackedBlock& block);
  Rotary& RotaryOf(std::int64_t layer);
  void ProjectHeads(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights, const T* normed);
  void ProjectLatent(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights, const T* normed);
  const T* LatentQueries(const LayerWeights<T>& weights, const T* normed, std::int64_t rows, Scratch& scratch) const;
  void AttendBlock(const AttentionTask& task, std::int64_t first_query, std::int64_t queries, std::int64_t window,
                   const float* sinks);
  RowState StartRows(std::int64_t rows, std::int64_t kv_head, const float* sinks, Scratch& scratch) const;

  const DecoderNumerics<T>& numerics_;
  const std::int64_t kv_heads_;
  const std::int64_t group_;
  const std::int64_t v_dim_;
  Rotary rotary_;
  std::optional<Rotary> local_rotary_;  ///< of sliding layers, where they have their own
  tbb::enumerable_thread_specific<Scratch> scratch_;
  std::vector<AttentionTask> tasks_;
  std::int64_t tokens_ = 0;
  AlignedBuffer<float> q_;     ///< [kv_heads][tokens][group * head_dim]
  AlignedBuffer<float> k_;     ///< [kv_heads][tokens][head_dim]
  AlignedBuffer<float> v_;     ///< [kv_heads][tokens][v_dim]
  AlignedBuffer<T> attended_;  ///< [tokens, heads * v_dim]
};

}  // namespace draftmill
