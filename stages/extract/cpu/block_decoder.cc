#include "stages/extract/cpu/block_decoder.h"

#include <oneapi/tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "stages/extract/cpu/attention.h"
#include "stages/extract/cpu/decoder_numerics.h"
#include "stages/extract/cpu/gated_mlp.h"
#include "stages/extract/cpu/routed_experts.h"
#include "stages/extract/cpu/worker_arena.h"
#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/weights/aligned_buffer.h"
#include "stages/extract/weights/layer_weights.h"

namespace draftmill {
namespace {

template <typename T, typename W>
class BlockDecoderOf : public BlockDecoder {
 public:
  BlockDecoderOf(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store, DecoderOptions options)
      : numerics_(config, options.fused_norms),
        config_(numerics_.config),
        store_(std::move(store)),
        options_(std::move(options)),
        layers_(*store_, numerics_.kernels),
        attention_(numerics_),
        experts_(numerics_),
        arena_(options_.threads) {}

  Status Run(const PackedBlock& block, const std::function<bool()>& should_stop) override {
    residual_.Grow(block.tokens * config_.hidden_size);
    attention_.Prepare(block);
    experts_.Prepare(block.tokens);
    const Status status = RunLayers(block, should_stop);
    layers_.ReleaseAll();
    return status;
  }

  ModelHead head() override {
    ModelHead head;
    head.hidden = config_.hidden_size;
    head.vocab_rows = config_.vocab_size;
    head.norm_weight = store_->final_norm();
    head.norm_epsilon = static_cast<float>(config_.norm_eps);
    head.norm_weight_offset = numerics_.norm_weight_offset;
    head.norm_rounding = numerics_.norm_rounding;
    head.read_rows = [this](std::int64_t first, std::int64_t count, float* rows) {
      return ReadHeadRows(first, count, rows);
    };
    return head;
  }

 private:
  Status ReadHeadRows(std::int64_t first, std::int64_t count, float* rows) {
    if constexpr (std::is_same_v<W, float>) {
      return store_->HeadRows(first, count, rows);
    } else {
      AlignedBuffer<W> stored(count * config_.hidden_size);
      DRAFTMILL_RETURN_IF_ERROR(store_->HeadRows(first, count, stored.data()));
      numerics_.kernels.widen(stored.data(), rows, count * config_.hidden_size);
      return OkStatus();
    }
  }

  /// What one thread needs for its tile.
  struct Scratch {
    AlignedBuffer<T> normed;    ///< [kTileRows, hidden]
    AlignedBuffer<T> branch;    ///< [kTileRows, hidden]
    AlignedBuffer<W> embedded;  ///< [kTileRows, hidden]
    GatedMlpScratch<T> mlp;
  };

  Scratch& ThreadScratch() {
    Scratch& scratch = scratch_.local();
    scratch.normed.Grow(kTileRows * config_.hidden_size);
    scratch.branch.Grow(kTileRows * config_.hidden_size);
    return scratch;
  }

  template <typename Body>
  void ForEachTile(const PackedBlock& block, const Body& body) {
    arena_.ForEach(block.tiles.size(), [&](std::size_t i) { body(block.tiles[i]); });
  }

  Status RunLayers(const PackedBlock& block, const std::function<bool()>& should_stop) {
    DRAFTMILL_RETURN_IF_ERROR(EmbedBlock(block));
    DRAFTMILL_RETURN_IF_ERROR(layers_.Acquire(0));
    arena_.ForEach(layers_.WideningTasks(-1), [&](std::size_t i) { layers_.WidenPiece(-1, i); });
    ForEachTile(block, [&](const PackedTile& tile) { BeginLayer(tile, 0); });
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (should_stop && should_stop())
        return Cancelled("extraction stopped inside a block; nothing of it was published");
      const bool last = layer + 1 == config_.num_layers;
      if (!last) DRAFTMILL_RETURN_IF_ERROR(layers_.Acquire(layer + 1));
      AttendBlock(layer);
      RunLayer(block, layer);
      layers_.Release(layer);
    }
    return OkStatus();
  }

  Status EmbedBlock(const PackedBlock& block) {
    std::vector<Status> statuses(block.tiles.size());
    arena_.ForEach(block.tiles.size(), [&](std::size_t i) {
      statuses[i] = Embed(block, block.tiles[i]);
      if (statuses[i].ok()) CaptureTile(block.tiles[i], 0);
    });
    for (const Status& status : statuses) DRAFTMILL_RETURN_IF_ERROR(status);
    return OkStatus();
  }

  /// Attention of a layer, beside it the widening of the weights that come next.
  void AttendBlock(std::int64_t layer) {
    const std::vector<AttentionTask>& tasks = attention_.tasks();
    arena_.ForEach(tasks.size() + layers_.WideningTasks(layer), [&](std::size_t i) {
      if (i < tasks.size()) return attention_.Attend(tasks[i], layer, layers_.At(layer));
      layers_.WidenPiece(layer, i - tasks.size());
    });
  }

  /// Everything of a layer after attention, and the head of the next.
  void RunLayer(const PackedBlock& block, std::int64_t layer) {
    const LayerWeights<T>& weights = layers_.At(layer);
    if (!weights.layout->has_experts()) {
      return ForEachTile(block, [&](const PackedTile& tile) {
        FinishAttention(tile, weights);
        DenseMlp(weights, tile);
        FinishLayer(tile, layer);
      });
    }
    ForEachTile(block, [&](const PackedTile& tile) {
      FinishAttention(tile, weights);
      experts_.Route(tile, weights, ThreadScratch().normed.data());
    });
    experts_.Run(arena_, block, layer, layers_);
    ForEachTile(block, [&](const PackedTile& tile) {
      experts_.Join(tile, weights, ThreadScratch().branch.data());
      FinishLayer(tile, layer);
    });
  }

  // ---- steps of a tile ----

  float* Residual(const PackedTile& tile) { return residual_.data() + tile.first * config_.hidden_size; }

  Status Embed(const PackedBlock& block, const PackedTile& tile) {
    const auto ids =
        std::span(block.input_ids).subspan(static_cast<std::size_t>(tile.first), static_cast<std::size_t>(tile.rows));
    const std::int64_t count = tile.rows * config_.hidden_size;
    if constexpr (std::is_same_v<W, float>) {
      DRAFTMILL_RETURN_IF_ERROR(store_->EmbeddingRows(ids, Residual(tile)));
    } else {
      AlignedBuffer<W>& rows = ThreadScratch().embedded;
      rows.Grow(kTileRows * config_.hidden_size);
      DRAFTMILL_RETURN_IF_ERROR(store_->EmbeddingRows(ids, rows.data()));
      numerics_.kernels.widen(rows.data(), Residual(tile), count);
    }
    if (config_.embedding_scale == 1.0) return OkStatus();
    const auto scale = static_cast<float>(config_.embedding_scale);
    numerics_.kernels.scale_values(Residual(tile), numerics_.rounds ? RoundToBf16(scale) : scale, count,
                                   numerics_.rounds);
    return OkStatus();
  }

  void CaptureTile(const PackedTile& tile, std::int64_t layer) {
    const auto found = std::find(options_.layers.begin(), options_.layers.end(), static_cast<std::int32_t>(layer));
    if (found == options_.layers.end()) return;
    const std::int64_t offset = (found - options_.layers.begin()) * config_.hidden_size;
    const std::int64_t stride = static_cast<std::int64_t>(options_.layers.size()) * config_.hidden_size;
    if (tile.capture != nullptr) {
      return numerics_.kernels.capture({Residual(tile), tile.capture + offset, tile.rows, config_.hidden_size, stride});
    }
    if (tile.capture_float == nullptr) return;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.capture_float + offset + r * stride, Residual(tile) + r * config_.hidden_size,
                  static_cast<std::size_t>(config_.hidden_size) * sizeof(float));
    }
  }

  /// The residual stream, normed for a product: zero rows up to kMinProductRows follow.
  void Norm(const PackedTile& tile, const float* weight, T* out) {
    numerics_.kernels.rms_norm({Residual(tile), weight, out, tile.rows, config_.hidden_size,
                                static_cast<float>(config_.norm_eps), numerics_.norm_rounding,
                                numerics_.norm_weight_offset});
    for (std::int64_t r = tile.rows; r < kMinProductRows; ++r) {
      std::memset(static_cast<void*>(out + r * config_.hidden_size), 0,
                  static_cast<std::size_t>(config_.hidden_size) * sizeof(T));
    }
  }

  void BeginLayer(const PackedTile& tile, std::int64_t layer) {
    const LayerWeights<T>& weights = layers_.At(layer);
    T* normed = ThreadScratch().normed.data();
    Norm(tile, weights.Vector(weights.layout->input_norm), normed);
    attention_.Project(tile, layer, weights, normed);
  }

  /// Adds the branch to the residual stream, through its own norm where the model has one.
  void AddBranch(const PackedTile& tile, const float* output_norm) {
    T* branch = ThreadScratch().branch.data();
    if (output_norm != nullptr) {
      numerics_.kernels.product_norm({branch, config_.hidden_size, output_norm, branch, tile.rows, config_.hidden_size,
                                      static_cast<float>(config_.norm_eps), numerics_.norm_rounding,
                                      numerics_.norm_weight_offset});
    }
    numerics_.kernels.add_residual({Residual(tile), branch, tile.rows * config_.hidden_size, numerics_.rounds});
  }

  /// Leaves the MLP's operand in the thread's `normed`.
  void FinishAttention(const PackedTile& tile, const LayerWeights<T>& weights) {
    Scratch& scratch = ThreadScratch();
    attention_.Output(tile, weights, scratch.branch.data());
    AddBranch(tile, weights.Vector(weights.layout->attention_output_norm));
    Norm(tile, weights.Vector(weights.layout->mlp_norm), scratch.normed.data());
  }

  /// From `normed` to `branch`.
  void DenseMlp(const LayerWeights<T>& weights, const PackedTile& tile) {
    Scratch& scratch = ThreadScratch();
    const LayerLayout& layout = *weights.layout;
    GatedMlp(numerics_,
             GatedMlpArgs<T>{scratch.normed.data(), scratch.branch.data(), tile.rows, config_.intermediate_size,
                             weights.matrices + layout.gate_up, weights.Bias(layout.gate_up_bias),
                             weights.matrices + layout.down, weights.Bias(layout.down_bias)},
             scratch.mlp);
  }

  void FinishLayer(const PackedTile& tile, std::int64_t layer) {
    const LayerWeights<T>& weights = layers_.At(layer);
    AddBranch(tile, weights.Vector(weights.layout->mlp_output_norm));
    CaptureTile(tile, layer + 1);
    if (layer + 1 < config_.num_layers) BeginLayer(tile, layer + 1);
  }

  const DecoderNumerics<T> numerics_;
  const ModelConfig& config_;
  const std::unique_ptr<WeightStore<W>> store_;
  const DecoderOptions options_;
  LayerWeightsOf<T, W> layers_;
  Attention<T> attention_;
  RoutedExperts<T, W> experts_;
  WorkerArena arena_;
  tbb::enumerable_thread_specific<Scratch> scratch_;
  AlignedBuffer<float> residual_;  ///< [tokens, hidden]; values of bfloat16 where the model is one
};

}  // namespace

template <typename T, typename W>
std::unique_ptr<BlockDecoder> MakeBlockDecoder(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store,
                                               DecoderOptions options) {
  return std::make_unique<BlockDecoderOf<T, W>>(config, std::move(store), std::move(options));
}

template std::unique_ptr<BlockDecoder> MakeBlockDecoder<float, float>(const ModelConfig&,
                                                                      std::unique_ptr<WeightStore<float>>,
                                                                      DecoderOptions);
template std::unique_ptr<BlockDecoder> MakeBlockDecoder<float, Bf16>(const ModelConfig&,
                                                                     std::unique_ptr<WeightStore<Bf16>>,
                                                                     DecoderOptions);
template std::unique_ptr<BlockDecoder> MakeBlockDecoder<Bf16, Bf16>(const ModelConfig&,
                                                                    std::unique_ptr<WeightStore<Bf16>>, DecoderOptions);

}  // namespace draftmill
