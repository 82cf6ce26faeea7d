#include "stages/extract/cpu/attention.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "stages/extract/cpu/products.h"
#include "stages/extract/memory/cpu_memory.h"

namespace draftmill {
namespace {

/// Queries of one attention task.
constexpr std::int64_t kTaskQueries = 512;

template <typename T>
void ClearPadding(AlignedBuffer<T>& buffer, std::int64_t tokens, std::int64_t width) {
  std::memset(static_cast<void*>(buffer.data() + tokens * width), 0,
              static_cast<std::size_t>(kMinProductRows * width) * sizeof(T));
}

}  // namespace

template <typename T>
Attention<T>::Attention(const DecoderNumerics<T>& numerics)
    : numerics_(numerics),
      kv_heads_(KvHeads(numerics.config)),
      group_(numerics.config.num_heads / kv_heads_),
      v_dim_(ValueDim(numerics.config)),
      rotary_(numerics.config.rope, numerics.rounds) {
  if (numerics.config.local_rope) local_rotary_.emplace(*numerics.config.local_rope, numerics.rounds);
}

template <typename T>
void Attention<T>::Prepare(const PackedBlock& block) {
  const ModelConfig& config = numerics_.config;
  tokens_ = block.tokens;
  const std::int64_t padded = tokens_ + kMinProductRows;  // the last rows are read as padding
  q_.Grow(padded * config.num_heads * config.head_dim);
  k_.Grow(padded * kv_heads_ * config.head_dim);
  v_.Grow(padded * kv_heads_ * v_dim_);
  attended_.Grow(padded * config.num_heads * v_dim_);
  ClearPadding(q_, tokens_, config.num_heads * config.head_dim);
  ClearPadding(attended_, tokens_, config.num_heads * v_dim_);
  for (Rotary* rotary : {&rotary_, local_rotary_ ? &*local_rotary_ : nullptr}) {
    if (rotary == nullptr) continue;
    rotary->rows.assign(static_cast<std::size_t>(tokens_), 0);
    for (const PackedSequence& sequence : block.sequences) {
      rotary->table.Grow(sequence.tokens);
      for (std::int64_t t = 0; t < sequence.tokens; ++t) {
        rotary->rows[static_cast<std::size_t>(sequence.first + t)] = rotary->table.Row(t, sequence.tokens);
      }
    }
  }
  CutTasks(block);
}

template <typename T>
void Attention<T>::CutTasks(const PackedBlock& block) {
  tasks_.clear();
  for (const PackedSequence& sequence : block.sequences) {
    for (std::int64_t first = 0; first < sequence.tokens; first += kTaskQueries) {
      const std::int64_t end = std::min(first + kTaskQueries, sequence.tokens);
      for (std::int64_t kv = 0; kv < kv_heads_; ++kv) tasks_.push_back({sequence, kv, first, end});
    }
  }
  // The dearest first, so that no thread begins a long one when the others are done.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const AttentionTask& a, const AttentionTask& b) { return a.end_query > b.end_query; });
}

template <typename T>
typename Attention<T>::Rotary& Attention<T>::RotaryOf(std::int64_t layer) {
  return local_rotary_ && numerics_.IsSliding(layer) ? *local_rotary_ : rotary_;
}

template <typename T>
void Attention<T>::Project(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights,
                           const T* normed) {
  if (numerics_.config.latent) return ProjectLatent(tile, layer, weights, normed);
  ProjectHeads(tile, layer, weights, normed);
}

template <typename T>
void Attention<T>::ProjectHeads(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights,
                                const T* normed) {
  const ModelConfig& config = numerics_.config;
  const LayerLayout& layout = *weights.layout;
  Scratch& scratch = scratch_.local();
  scratch.qkv.Grow(kTileRows * config.qkv_width());
  Linear(LinearArgs<T>{normed, weights.matrices + layout.qkv, weights.Bias(layout.qkv_bias), scratch.qkv.data(),
                       std::max(tile.rows, kMinProductRows), config.hidden_size, config.qkv_width()});
  const Rotary& rotary = RotaryOf(layer);
  SplitRotateArgs<T> args;
  args.qkv = scratch.qkv.data();
  args.rotary_rows = rotary.rows.data() + tile.first;
  args.cosines = rotary.table.cosines();
  args.sines = rotary.table.sines();
  args.q_norm = weights.Vector(layout.q_norm);
  args.k_norm = weights.Vector(layout.k_norm);
  args.q = q_.data() + tile.first * group_ * config.head_dim;
  args.k = k_.data() + tile.first * config.head_dim;
  args.v = v_.data() + tile.first * config.head_dim;
  args.tokens = tokens_;
  args.rows = tile.rows;
  args.heads = config.num_heads;
  args.kv_heads = kv_heads_;
  args.head_dim = config.head_dim;
  args.rotary_dims = rotary.dims;
  args.epsilon = static_cast<float>(config.norm_eps);
  args.rounds = numerics_.rounds;
  args.norm_rounding = numerics_.norm_rounding;
  args.norm_weight_offset = numerics_.norm_weight_offset;
  numerics_.kernels.split_rotate(args);
}

/// Rows of q, through their latent where the model has one.
template <typename T>
const T* Attention<T>::LatentQueries(const LayerWeights<T>& weights, const T* normed, std::int64_t rows,
                                     Scratch& scratch) const {
  const ModelConfig& config = numerics_.config;
  const LatentAttention& latent = *config.latent;
  const LayerLayout& layout = *weights.layout;
  const T* from = normed;
  if (latent.q_lora_rank > 0) {
    Linear(LinearArgs<T>{normed, weights.matrices + layout.q_a, nullptr, scratch.latent.data(), rows,
                         config.hidden_size, latent.q_lora_rank});
    numerics_.kernels.product_norm({scratch.latent.data(), latent.q_lora_rank, weights.Vector(layout.q_a_norm),
                                    scratch.normed_latent.data(), rows, latent.q_lora_rank,
                                    static_cast<float>(latent.latent_norm_eps), numerics_.norm_rounding,
                                    numerics_.norm_weight_offset});
    from = scratch.normed_latent.data();
  }
  const std::int64_t inputs = latent.q_lora_rank > 0 ? latent.q_lora_rank : config.hidden_size;
  Linear(
      LinearArgs<T>{from, weights.matrices + layout.q_b, nullptr, scratch.qkv.data(), rows, inputs, config.q_width()});
  return scratch.qkv.data();
}

template <typename T>
void Attention<T>::ProjectLatent(const PackedTile& tile, std::int64_t layer, const LayerWeights<T>& weights,
                                 const T* normed) {
  const ModelConfig& config = numerics_.config;
  const LatentAttention& latent = *config.latent;
  const LayerLayout& layout = *weights.layout;
  const std::int64_t rows = std::max(tile.rows, kMinProductRows);
  const std::int64_t compressed = latent.kv_lora_rank + latent.rope_dim;
  const std::int64_t kv_width = config.num_heads * (latent.nope_dim + latent.v_dim);
  Scratch& scratch = scratch_.local();
  scratch.qkv.Grow(kTileRows * config.q_width());
  scratch.latent.Grow(kTileRows * std::max(latent.q_lora_rank, compressed));
  scratch.normed_latent.Grow(kTileRows * std::max(latent.q_lora_rank, latent.kv_lora_rank));
  scratch.kv.Grow(kTileRows * kv_width);
  const Rotary& rotary = RotaryOf(layer);
  LatentSplitArgs<T> args;
  args.q_rows = LatentQueries(weights, normed, rows, scratch);
  Linear(LinearArgs<T>{normed, weights.matrices + layout.kv_a, nullptr, scratch.latent.data(), rows, config.hidden_size,
                       compressed});
  numerics_.kernels.product_norm({scratch.latent.data(), compressed, weights.Vector(layout.kv_a_norm),
                                  scratch.normed_latent.data(), rows, latent.kv_lora_rank,
                                  static_cast<float>(latent.latent_norm_eps), numerics_.norm_rounding,
                                  numerics_.norm_weight_offset});
  Linear(LinearArgs<T>{scratch.normed_latent.data(), weights.matrices + layout.kv_b, nullptr, scratch.kv.data(), rows,
                       latent.kv_lora_rank, kv_width});
  args.kv_rows = scratch.kv.data();
  args.k_rope = scratch.latent.data() + latent.kv_lora_rank;
  args.k_rope_stride = compressed;
  args.rotary_rows = rotary.rows.data() + tile.first;
  args.cosines = rotary.table.cosines();
  args.sines = rotary.table.sines();
  args.q = q_.data() + tile.first * config.head_dim;
  args.k = k_.data() + tile.first * config.head_dim;
  args.v = v_.data() + tile.first * v_dim_;
  args.tokens = tokens_;
  args.rows = tile.rows;
  args.heads = config.num_heads;
  args.nope_dim = latent.nope_dim;
  args.rope_dim = latent.rope_dim;
  args.v_dim = latent.v_dim;
  args.interleaved = config.rope.interleaved;
  args.rounds = numerics_.rounds;
  numerics_.kernels.latent_split(args);
}

template <typename T>
void Attention<T>::Attend(const AttentionTask& task, std::int64_t layer, const LayerWeights<T>& weights) {
  const std::int64_t window = numerics_.IsSliding(layer) ? numerics_.config.sliding_window : 0;
  const float* sinks = weights.Vector(weights.layout->sinks);
  for (std::int64_t first = task.first_query; first < task.end_query; first += kQueryBlock) {
    AttendBlock(task, first, std::min(kQueryBlock, task.end_query - first), window, sinks);
  }
}

/// A sink is a score that every query has and whose value is zero: rows begin with it as their maximum and e^0 as sum.
template <typename T>
typename Attention<T>::RowState Attention<T>::StartRows(std::int64_t rows, std::int64_t kv_head, const float* sinks,
                                                        Scratch& scratch) const {
  const std::int64_t most = AttentionRows(numerics_.config);
  scratch.row_state.Grow(most * 3);
  const RowState state{scratch.row_state.data(), scratch.row_state.data() + most, scratch.row_state.data() + 2 * most};
  for (std::int64_t r = 0; r < rows; ++r) {
    state.maximum[r] =
        sinks == nullptr ? -std::numeric_limits<float>::infinity() : sinks[kv_head * group_ + r % group_];
    state.sum[r] = sinks == nullptr ? 0.0F : 1.0F;
  }
  return state;
}

template <typename T>
void Attention<T>::AttendBlock(const AttentionTask& task, std::int64_t first_query, std::int64_t queries,
                               std::int64_t window, const float* sinks) {
  const ModelConfig& config = numerics_.config;
  Scratch& scratch = scratch_.local();
  const std::int64_t dim = config.head_dim;
  const std::int64_t rows = std::max(queries * group_, kMinProductRows);
  scratch.scores.Grow(AttentionRows(config) * kKeyBlock);
  scratch.values.Grow(AttentionRows(config) * v_dim_);
  const RowState state = StartRows(rows, task.kv_head, sinks, scratch);
  const std::int64_t place = task.kv_head * tokens_ + task.sequence.first;
  const float* q = q_.data() + (place + first_query) * group_ * dim;
  const std::int64_t first_key = window > 0 ? std::max<std::int64_t>(0, first_query - window + 1) : 0;
  for (std::int64_t key = first_key; key < first_query + queries; key += kKeyBlock) {
    const std::int64_t keys = std::min(kKeyBlock, first_query + queries - key);
    MultiplyTransposed(q, k_.data() + (place + key) * dim, scratch.scores.data(), rows, keys, dim);
    numerics_.kernels.softmax_block({scratch.scores.data(), state.maximum, state.sum, state.rescale, rows, keys, group_,
                                     first_query, key, window, static_cast<float>(config.softmax_scale),
                                     static_cast<float>(config.attention_softcap)});
    if (key > first_key) numerics_.kernels.scale_rows(scratch.values.data(), state.rescale, rows, v_dim_);
    Multiply(scratch.scores.data(), v_.data() + (place + key) * v_dim_, scratch.values.data(), rows, v_dim_, keys,
             key > first_key);
  }
  StoreHeadsArgs<T> store;
  store.values = scratch.values.data();
  store.sum = state.sum;
  store.out = attended_.data() + (task.sequence.first + first_query) * config.num_heads * v_dim_ +
              task.kv_head * group_ * v_dim_;
  store.rows = queries * group_;
  store.group = group_;
  store.head_dim = v_dim_;
  store.out_stride = config.num_heads * v_dim_;
  store.rounds = numerics_.rounds;
  numerics_.kernels.store_heads(store);
}

template <typename T>
void Attention<T>::Output(const PackedTile& tile, const LayerWeights<T>& weights, T* out) const {
  const std::int64_t width = numerics_.config.num_heads * v_dim_;
  const LayerLayout& layout = *weights.layout;
  Linear(LinearArgs<T>{attended_.data() + tile.first * width, weights.matrices + layout.o, weights.Bias(layout.o_bias),
                       out, std::max(tile.rows, kMinProductRows), width, numerics_.config.hidden_size});
}

template class Attention<float>;
template class Attention<Bf16>;

}  // namespace draftmill
