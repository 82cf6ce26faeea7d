#include "stages/extract/cpu/routed_experts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "stages/extract/cpu/products.h"
#include "stages/extract/memory/cpu_memory.h"

namespace draftmill {
namespace {

RouterKind RouterKindOf(RouterScoring scoring) {
  switch (scoring) {
    case RouterScoring::kSoftmax: return RouterKind::kSoftmax;
    case RouterScoring::kSoftmaxChosen: return RouterKind::kSoftmaxChosen;
    case RouterScoring::kSigmoidBiased: return RouterKind::kSigmoidBiased;
  }
  return RouterKind::kSoftmax;
}

template <typename T>
void ClearRows(T* rows, std::int64_t from, std::int64_t to, std::int64_t cols) {
  for (std::int64_t r = from; r < to; ++r) {
    std::memset(static_cast<void*>(rows + r * cols), 0, static_cast<std::size_t>(cols) * sizeof(T));
  }
}

}  // namespace

template <typename T, typename W>
void RoutedExperts<T, W>::Prepare(std::int64_t tokens) {
  if (!numerics_.config.experts) return;
  tokens_ = tokens;
  const std::int64_t hidden = numerics_.config.hidden_size;
  normed_.Grow(tokens * hidden);
  expert_rows_.Grow(tokens * hidden);
  sums_.Grow(tokens * hidden);
  const auto choices = static_cast<std::size_t>(tokens * experts().top_k);
  chosen_.resize(choices);
  weights_.resize(choices);
  slots_.resize(choices);
  slot_token_.resize(choices);
}

/// The router's logits, as float32 products of what enters it.
template <typename T, typename W>
const float* RoutedExperts<T, W>::Logits(const PackedTile& tile, const LayerWeights<T>& weights, const T* normed,
                                         Scratch& scratch) const {
  const std::int64_t rows = std::max(tile.rows, kMinProductRows);
  const std::int64_t hidden = numerics_.config.hidden_size;
  const std::int64_t count = experts().experts;
  const LayerLayout& layout = *weights.layout;
  scratch.logits.Grow(kTileRows * count);
  Linear(LinearArgs<float>{AsFloat(normed, rows * hidden, scratch), weights.Vector(layout.router),
                           weights.Vector(layout.router_bias), scratch.logits.data(), rows, hidden, count});
  return scratch.logits.data();
}

template <typename T, typename W>
const float* RoutedExperts<T, W>::AsFloat(const T* values, std::int64_t count, Scratch& scratch) const {
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    scratch.wide_rows.Grow(kTileRows * numerics_.config.hidden_size);
    numerics_.kernels.widen(values, scratch.wide_rows.data(), count);
    return scratch.wide_rows.data();
  }
}

template <typename T, typename W>
void RoutedExperts<T, W>::Route(const PackedTile& tile, const LayerWeights<T>& weights, const T* normed) {
  const MixtureOfExperts& moe = experts();
  const std::int64_t hidden = numerics_.config.hidden_size;
  Scratch& scratch = scratch_.local();
  scratch.scores.Grow(2 * moe.experts);
  RouteArgs args;
  args.logits = Logits(tile, weights, normed, scratch);
  args.bias = weights.Vector(weights.layout->correction_bias);
  args.scratch = scratch.scores.data();
  args.chosen = chosen_.data() + tile.first * moe.top_k;
  args.weights = weights_.data() + tile.first * moe.top_k;
  args.rows = tile.rows;
  args.experts = moe.experts;
  args.top_k = moe.top_k;
  args.kind = RouterKindOf(moe.scoring);
  args.groups = moe.groups;
  args.groups_kept = moe.groups_kept;
  args.renormalise = moe.renormalise;
  args.scaling = static_cast<float>(moe.scaling);
  args.rounds = numerics_.rounds && moe.scoring != RouterScoring::kSigmoidBiased;
  numerics_.expert_kernels.route(args);
  std::memcpy(static_cast<void*>(normed_.data() + tile.first * hidden), normed,
              static_cast<std::size_t>(tile.rows * hidden) * sizeof(T));
  ClearRows(sums_.data(), tile.first, tile.first + tile.rows, hidden);
}

/// Sorts all choices by expert, then by token.
template <typename T, typename W>
void RoutedExperts<T, W>::PlanSlots(const PackedBlock& block) {
  const std::int64_t top_k = experts().top_k;
  first_slot_.assign(static_cast<std::size_t>(experts().experts) + 1, 0);
  const auto for_each_choice = [&](const auto& body) {
    for (const PackedTile& tile : block.tiles) {
      for (std::int64_t choice = tile.first * top_k; choice < (tile.first + tile.rows) * top_k; ++choice) {
        body(static_cast<std::size_t>(choice), static_cast<std::size_t>(chosen_[static_cast<std::size_t>(choice)]));
      }
    }
  };
  for_each_choice([&](std::size_t, std::size_t expert) { ++first_slot_[expert + 1]; });
  for (std::size_t e = 1; e < first_slot_.size(); ++e) first_slot_[e] += first_slot_[e - 1];
  std::vector<std::int64_t> next(first_slot_.begin(), first_slot_.end() - 1);
  for_each_choice([&](std::size_t choice, std::size_t expert) {
    const std::int64_t slot = next[expert]++;
    slots_[choice] = static_cast<std::int32_t>(slot);
    slot_token_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(static_cast<std::int64_t>(choice) / top_k);
  });
}

template <typename T, typename W>
std::vector<typename RoutedExperts<T, W>::Wave> RoutedExperts<T, W>::PlanWaves() const {
  std::vector<Wave> waves;
  std::int64_t rows = 0;
  for (std::int32_t expert = 0; expert < static_cast<std::int32_t>(experts().experts); ++expert) {
    if (RowsOf(expert) == 0) continue;
    if (waves.empty() || rows + RowsOf(expert) > tokens_) {
      waves.push_back({expert, expert + 1});
      rows = 0;
    }
    waves.back().end_expert = expert + 1;
    rows += RowsOf(expert);
  }
  return waves;
}

template <typename T, typename W>
void RoutedExperts<T, W>::RunExpert(std::int32_t expert, std::int64_t wave_slot, std::int64_t layer,
                                    const LayerWeightsOf<T, W>& layers) {
  const std::int64_t hidden = numerics_.config.hidden_size;
  const std::int64_t width = experts().expert_intermediate;
  const LayerWeights<T>& weights = layers.At(layer);
  const LayerLayout& layout = *weights.layout;
  Scratch& scratch = scratch_.local();
  scratch.gathered.Grow(kTileRows * hidden);
  scratch.branch.Grow(kTileRows * hidden);
  const ExpertView<T> matrices = layers.Expert(layer, expert, scratch.expert);
  const T* gate_up_bias = weights.Bias(layout.experts_gate_up_bias);
  const T* down_bias = weights.Bias(layout.experts_down_bias);
  const std::int64_t first = first_slot_[static_cast<std::size_t>(expert)];
  for (std::int64_t done = 0; done < RowsOf(expert); done += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, RowsOf(expert) - done);
    numerics_.expert_kernels.gather_rows(normed_.data(), slot_token_.data() + first + done, scratch.gathered.data(),
                                         rows, hidden);
    ClearRows(scratch.gathered.data(), rows, kMinProductRows, hidden);
    GatedMlp(numerics_,
             GatedMlpArgs<T>{scratch.gathered.data(), scratch.branch.data(), rows, width, matrices.gate_up,
                             gate_up_bias == nullptr ? nullptr : gate_up_bias + expert * 2 * width, matrices.down,
                             down_bias == nullptr ? nullptr : down_bias + expert * hidden},
             scratch.mlp);
    std::memcpy(static_cast<void*>(expert_rows_.data() + (first + done - wave_slot) * hidden), scratch.branch.data(),
                static_cast<std::size_t>(rows * hidden) * sizeof(T));
  }
}

template <typename T, typename W>
void RoutedExperts<T, W>::AddWave(const PackedTile& tile, const Wave& wave) {
  const std::int64_t top_k = experts().top_k;
  AddExpertsArgs<T> args;
  args.expert_rows = expert_rows_.data();
  args.chosen = chosen_.data() + tile.first * top_k;
  args.weights = weights_.data() + tile.first * top_k;
  args.slots = slots_.data() + tile.first * top_k;
  args.first_slot = first_slot_[static_cast<std::size_t>(wave.first_expert)];
  args.first_expert = wave.first_expert;
  args.end_expert = wave.end_expert;
  args.sums = sums_.data() + tile.first * numerics_.config.hidden_size;
  args.rows = tile.rows;
  args.top_k = top_k;
  args.cols = numerics_.config.hidden_size;
  args.rounds = numerics_.rounds;
  args.rounds_terms = numerics_.rounds && experts().scoring != RouterScoring::kSigmoidBiased;
  numerics_.expert_kernels.add_experts(args);
}

template <typename T, typename W>
void RoutedExperts<T, W>::Run(WorkerArena& arena, const PackedBlock& block, std::int64_t layer,
                              const LayerWeightsOf<T, W>& layers) {
  PlanSlots(block);
  for (const Wave& wave : PlanWaves()) {
    std::vector<std::int32_t> order;
    for (std::int32_t expert = wave.first_expert; expert < wave.end_expert; ++expert) {
      if (RowsOf(expert) > 0) order.push_back(expert);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return RowsOf(a) > RowsOf(b); });
    const std::int64_t wave_slot = first_slot_[static_cast<std::size_t>(wave.first_expert)];
    arena.ForEach(order.size(), [&](std::size_t i) { RunExpert(order[i], wave_slot, layer, layers); });
    arena.ForEach(block.tiles.size(), [&](std::size_t i) { AddWave(block.tiles[i], wave); });
  }
}

template <typename T, typename W>
void RoutedExperts<T, W>::Join(const PackedTile& tile, const LayerWeights<T>& weights, T* out) {
  const std::int64_t hidden = numerics_.config.hidden_size;
  const LayerLayout& layout = *weights.layout;
  const T* shared = nullptr;
  if (layout.shared_gate_up >= 0) {
    Scratch& scratch = scratch_.local();
    scratch.gathered.Grow(kTileRows * hidden);
    // The tile's rows again, since its last row may be the only one.
    std::memcpy(static_cast<void*>(scratch.gathered.data()), normed_.data() + tile.first * hidden,
                static_cast<std::size_t>(tile.rows * hidden) * sizeof(T));
    ClearRows(scratch.gathered.data(), tile.rows, kMinProductRows, hidden);
    GatedMlp(numerics_,
             GatedMlpArgs<T>{
                 scratch.gathered.data(), out, tile.rows, experts().shared_experts * experts().expert_intermediate,
                 weights.matrices + layout.shared_gate_up, nullptr, weights.matrices + layout.shared_down, nullptr},
             scratch.mlp);
    shared = out;
  }
  numerics_.expert_kernels.join_shared(
      {sums_.data() + tile.first * hidden, shared, out, tile.rows * hidden, numerics_.rounds});
}

template class RoutedExperts<float, float>;
template class RoutedExperts<float, Bf16>;
template class RoutedExperts<Bf16, Bf16>;

}  // namespace draftmill
