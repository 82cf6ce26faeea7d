// The weights of the layer that is computed and of the next one, as products take them.
//
//   LayerWeightsOf<float, Bf16> layers(*store, kernels);
//   DRAFTMILL_RETURN_IF_ERROR(layers.Acquire(layer + 1));
//   arena.ForEach(layers.WideningTasks(layer), [&](std::size_t i) { layers.WidenPiece(layer, i); });
//   Multiply(x, layers.At(layer).matrices + layers.At(layer).layout->o, ...);
//
// T is the type of products, W that of the stored weights. Where they differ, matrices are widened in pieces that are tasks
// of the arena, beside the attention of `layer`: those that this layer needs after it (from `o` on) and those that the next
// one needs before its own (up to `o`). So one layer's room is enough for two layers' halves. Experts are widened one at
// a time, by the task that computes them.
// Acquire and Release come from one thread; WidenPiece and Expert from any.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/status.h"
#include "kernels/decoder_cpu.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/expert_weights.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {

/// A layer's weights but for its experts. Offsets as in the layout.
template <typename T>
struct LayerWeights {
  const LayerLayout* layout = nullptr;
  const float* vectors = nullptr;
  const T* biases = nullptr;  ///< the vectors as T: products add biases before they round
  const T* matrices = nullptr;

  const float* Vector(std::int64_t offset) const { return offset < 0 ? nullptr : vectors + offset; }
  const T* Bias(std::int64_t offset) const { return offset < 0 ? nullptr : biases + offset; }
};

/// What expanding and widening one expert needs; one for each thread.
template <typename T, typename W>
struct ExpertScratch {
  AlignedBuffer<W> expanded;
  AlignedBuffer<T> widened;
};

template <typename T, typename W>
class LayerWeightsOf {
 public:
  LayerWeightsOf(WeightStore<W>& store, const DecoderKernels<T>& kernels) : store_(store), kernels_(kernels) {}

  /// Holds a layer and makes room for its widened form. Two layers are held at most.
  Status Acquire(std::int64_t layer) {
    Held& held = Slot(layer);
    DRAFTMILL_ASSIGN_OR_RETURN(held.view, store_.Acquire(layer));
    held.layer = layer;
    const LayerLayout& layout = *held.view.layout;
    held.weights.layout = &layout;
    held.weights.vectors = held.view.vectors;
    if constexpr (std::is_same_v<T, float>) {
      held.weights.biases = held.view.vectors;
    } else {
      held.biases.Grow(layout.vectors_total);
      std::transform(held.view.vectors, held.view.vectors + layout.vectors_total, held.biases.data(), ToBf16);
      held.weights.biases = held.biases.data();
    }
    if constexpr (kWidens) {
      // Nothing in it is needed now: what was widened last has been multiplied.
      widened_.Grow(WidenedElements(layout));
      for (Held& each : held_) each.weights.matrices = widened_.data();
    } else {
      held.weights.matrices = held.view.matrices;
    }
    return OkStatus();
  }

  void Release(std::int64_t layer) {
    store_.Release(layer);
    Slot(layer).layer = -1;
  }
  void ReleaseAll() {
    for (const Held& held : held_) {
      if (held.layer >= 0) Release(held.layer);
    }
  }

  /// How many pieces are widened beside the attention of a layer; -1 stands for before the first one.
  std::size_t WideningTasks(std::int64_t layer) const {
    if (!kWidens) return 0;
    return Pieces(AfterAttention(layer)) + Pieces(BeforeAttention(layer + 1));
  }
  void WidenPiece(std::int64_t layer, std::size_t piece) {
    if constexpr (kWidens) {
      const std::size_t after = Pieces(AfterAttention(layer));
      const Stretch stretch = piece < after ? AfterAttention(layer) : BeforeAttention(layer + 1);
      const std::int64_t begin =
          stretch.begin + static_cast<std::int64_t>(piece < after ? piece : piece - after) * kPieceElements;
      kernels_.widen(stretch.matrices + begin, widened_.data() + begin, std::min(kPieceElements, stretch.end - begin));
    }
  }

  /// The weights of a layer that is held.
  const LayerWeights<T>& At(std::int64_t layer) const {
    return held_[static_cast<std::size_t>(layer % kHeldLayers)].weights;
  }

  /// One expert of a layer that is held; valid until the scratch is used again.
  ExpertView<T> Expert(std::int64_t layer, std::int64_t expert, ExpertScratch<T, W>& scratch) const {
    const LayerView<W>& view = held_[static_cast<std::size_t>(layer % kHeldLayers)].view;
    const LayerLayout& layout = *view.layout;
    scratch.expanded.Grow(ExpertScratchElements(layout));
    const ExpertView<W> stored = ExpertOf(view, expert, scratch.expanded.data());
    if constexpr (kWidens) {
      const std::int64_t gate_up = layout.expert_gate_up_elements;
      scratch.widened.Grow(gate_up + layout.expert_down_elements);
      kernels_.widen(stored.gate_up, scratch.widened.data(), gate_up);
      kernels_.widen(stored.down, scratch.widened.data() + gate_up, layout.expert_down_elements);
      return {scratch.widened.data(), scratch.widened.data() + gate_up};
    } else {
      return stored;
    }
  }

 private:
  static constexpr bool kWidens = !std::is_same_v<T, W>;
  static constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

  struct Held {
    std::int64_t layer = -1;
    LayerView<W> view;
    LayerWeights<T> weights;
    AlignedBuffer<T> biases;
  };

  /// Elements of a layer's matrices.
  struct Stretch {
    const W* matrices = nullptr;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  static std::size_t Pieces(const Stretch& stretch) {
    return static_cast<std::size_t>((stretch.end - stretch.begin + kPieceElements - 1) / kPieceElements);
  }

  /// What a layer multiplies after its attention; nothing where it is not held.
  Stretch AfterAttention(std::int64_t layer) const {
    const Held* const held = Find(layer);
    if (held == nullptr) return {};
    return {held->view.matrices, held->view.layout->o, WidenedElements(*held->view.layout)};
  }
  Stretch BeforeAttention(std::int64_t layer) const {
    const Held* const held = Find(layer);
    if (held == nullptr) return {};
    return {held->view.matrices, 0, held->view.layout->o};
  }
  const Held* Find(std::int64_t layer) const {
    const auto found =
        std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return layer >= 0 && held.layer == layer; });
    return found == held_.end() ? nullptr : &*found;
  }

  /// Experts stand last and are widened when they are used.
  static std::int64_t WidenedElements(const LayerLayout& layout) {
    return layout.experts_gate_up >= 0 ? layout.experts_gate_up : layout.matrices_total;
  }
  Held& Slot(std::int64_t layer) { return held_[static_cast<std::size_t>(layer % kHeldLayers)]; }

  WeightStore<W>& store_;
  const DecoderKernels<T>& kernels_;
  std::array<Held, kHeldLayers> held_;
  AlignedBuffer<T> widened_;
};

}  // namespace draftmill
