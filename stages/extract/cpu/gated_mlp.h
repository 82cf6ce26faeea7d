// A gated MLP over rows: the dense one of a layer, one expert, the shared experts. Two products and the gate between.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stages/extract/cpu/decoder_numerics.h"
#include "stages/extract/cpu/products.h"
#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/weights/aligned_buffer.h"

namespace draftmill {

template <typename T>
struct GatedMlpArgs {
  const T* in = nullptr;            ///< [max(rows, kMinProductRows), hidden]
  T* out = nullptr;                 ///< [max(rows, kMinProductRows), hidden]
  std::int64_t rows = 0;            ///< at most kTileRows
  std::int64_t width = 0;           ///< intermediate size
  const T* gate_up = nullptr;       ///< [2 * width, hidden], gate first
  const T* gate_up_bias = nullptr;  ///< may be null
  const T* down = nullptr;          ///< [hidden, width]
  const T* down_bias = nullptr;
};

/// What one thread needs for it.
template <typename T>
struct GatedMlpScratch {
  AlignedBuffer<T> wide;   ///< [kTileRows, 2 * width]
  AlignedBuffer<T> gated;  ///< [kTileRows, width]
};

inline GateKind GateKindOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return GateKind::kSilu;
    case Activation::kGeluTanh: return GateKind::kGeluTanh;
    case Activation::kClampedSwiglu: return GateKind::kClampedSwiglu;
  }
  return GateKind::kSilu;
}

template <typename T>
void GatedMlp(const DecoderNumerics<T>& numerics, const GatedMlpArgs<T>& args, GatedMlpScratch<T>& scratch) {
  const ModelConfig& config = numerics.config;
  const std::int64_t rows = std::max(args.rows, kMinProductRows);
  scratch.wide.Grow(kTileRows * 2 * args.width);
  scratch.gated.Grow(kTileRows * args.width);
  Linear(LinearArgs<T>{args.in, args.gate_up, args.gate_up_bias, scratch.wide.data(), rows, config.hidden_size,
                       2 * args.width});
  numerics.kernels.gate({scratch.wide.data(), scratch.gated.data(), rows, args.width, numerics.rounds,
                         GateKindOf(config.activation), static_cast<float>(config.swiglu_limit)});
  Linear(
      LinearArgs<T>{scratch.gated.data(), args.down, args.down_bias, args.out, rows, args.width, config.hidden_size});
}

}  // namespace draftmill
