#include "stages/extract/block_decoder.h"

#include <oneapi/tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "stages/extract/aligned_buffer.h"
#include "stages/extract/products.h"
#include "stages/extract/rotary_table.h"
#include "stages/extract/worker_arena.h"

namespace draftmill {
namespace {

/// Queries of one attention task.
constexpr std::int64_t kTaskQueries = 512;
/// Elements of one widening task.
constexpr std::int64_t kWidenElements = std::int64_t{1} << 20;
/// A layer's weights as the products take them.
template <typename T>
struct LayerWeights {
  const LayerLayout* layout = nullptr;
  const float* vectors = nullptr;  ///< norms, and biases as float
  const T* biases = nullptr;       ///< the same part as T: products add biases before they round
  const T* matrices = nullptr;     ///< offsets as in the layout
};

/// What one thread needs for its tile or attention task.
template <typename T, typename W>
struct Scratch {
  AlignedBuffer<T> normed;     ///< [tile, max(hidden, q width)]
  AlignedBuffer<T> wide;       ///< [tile, max(qkv width, 2 * intermediate)]
  AlignedBuffer<T> gated;      ///< [tile, intermediate]
  AlignedBuffer<T> branch;     ///< [tile, hidden]
  AlignedBuffer<W> embedded;   ///< [tile, hidden]
  AlignedBuffer<float> scores; ///< [rows, kKeyBlock]
  AlignedBuffer<float> values; ///< [rows, head_dim]
  AlignedBuffer<float> row_state;  ///< maximum, sum, rescale: 3 x [rows]
};

/// A range of one sequence's queries for one kv head.
struct AttentionTask {
  PackedSequence sequence;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0;
  std::int64_t end_query = 0;
};

std::vector<AttentionTask> CutAttention(const PackedBlock& block, std::int64_t kv_heads) {
  std::vector<AttentionTask> tasks;
  for (const PackedSequence& sequence : block.sequences) {
    for (std::int64_t first = 0; first < sequence.tokens; first += kTaskQueries) {
      const std::int64_t end = std::min(first + kTaskQueries, sequence.tokens);
      for (std::int64_t kv = 0; kv < kv_heads; ++kv) tasks.push_back({sequence, kv, first, end});
    }
  }
  // The dearest first, so that no thread begins a long one when the others are done.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const AttentionTask& a, const AttentionTask& b) { return a.end_query > b.end_query; });
  return tasks;
}

template <typename T, typename W>
class BlockDecoderOf : public BlockDecoder {
 public:
  BlockDecoderOf(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store, DecoderOptions options)
      : config_(config),
        store_(std::move(store)),
        options_(std::move(options)),
        kernels_(DecoderKernelsFor<T>(DetectInstructionSet())),
        rounds_(config.compute == ComputeType::kBfloat16),
        norm_rounding_(!rounds_ ? NormRounding::kNone : options_.fused_norms ? NormRounding::kFused : NormRounding::kHf),
        group_(config.num_heads / config.num_kv_heads),
        rotary_(config.rope, rounds_),
        arena_(options_.threads) {}

  Status Run(const PackedBlock& block, const std::function<bool()>& should_stop) override {
    PrepareBuffers(block);
    DRAFTMILL_RETURN_IF_ERROR(AcquireLayer(0));
    const Status status = RunLayers(block, should_stop);
    ReleaseAll();
    return status;
  }

 private:
  Status RunLayers(const PackedBlock& block, const std::function<bool()>& should_stop) {
    const std::vector<AttentionTask> attention = CutAttention(block, config_.num_kv_heads);
    arena_.ForEach(WideningTasks(0), [&](std::size_t i) { WidenPiece(0, i); });
    std::vector<Status> embedded(block.tiles.size());
    arena_.ForEach(block.tiles.size(), [&](std::size_t i) {
      embedded[i] = Embed(block, block.tiles[i]);
      if (!embedded[i].ok()) return;
      CaptureTile(block.tiles[i], 0);
      BeginLayer(block, block.tiles[i], 0);
    });
    for (const Status& status : embedded) DRAFTMILL_RETURN_IF_ERROR(status);
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (should_stop && should_stop()) return Cancelled("extraction stopped inside a block; nothing of it was published");
      const bool last = layer + 1 == config_.num_layers;
      if (!last) DRAFTMILL_RETURN_IF_ERROR(AcquireLayer(layer + 1));
      const std::size_t widening = last ? 0 : WideningTasks(layer + 1);
      arena_.ForEach(attention.size() + widening, [&](std::size_t i) {
        if (i < attention.size()) return Attend(attention[i], layer);
        WidenPiece(layer + 1, i - attention.size());
      });
      arena_.ForEach(block.tiles.size(), [&](std::size_t i) {
        FinishLayer(block.tiles[i], layer);
        CaptureTile(block.tiles[i], layer + 1);
        if (!last) BeginLayer(block, block.tiles[i], layer + 1);
      });
      ReleaseLayer(layer);
    }
    return OkStatus();
  }

  void PrepareBuffers(const PackedBlock& block) {
    const std::int64_t tokens = block.tokens + kMinProductRows;  // the last rows are read as padding
    residual_.Grow(tokens * config_.hidden_size);
    q_.Grow(tokens * config_.q_width());
    k_.Grow(tokens * config_.kv_width());
    v_.Grow(tokens * config_.kv_width());
    attended_.Grow(tokens * config_.q_width());
    std::memset(q_.data() + block.tokens * config_.q_width(), 0, PadBytes(config_.q_width(), sizeof(float)));
    std::memset(static_cast<void*>(attended_.data() + block.tokens * config_.q_width()), 0, PadBytes(config_.q_width(), sizeof(T)));
    std::int64_t longest = 0;
    for (const PackedSequence& sequence : block.sequences) longest = std::max(longest, sequence.tokens);
    rotary_.Grow(longest);
    token_count_ = block.tokens;
  }
  static std::size_t PadBytes(std::int64_t width, std::size_t element) {
    return static_cast<std::size_t>(kMinProductRows * width) * element;
  }

  Scratch<T, W>& ThreadScratch() {
    Scratch<T, W>& scratch = scratch_.local();
    if (scratch.normed.count() > 0) return scratch;
    scratch.normed.Grow(kTileRows * config_.hidden_size);
    scratch.wide.Grow(kTileRows * std::max(config_.qkv_width(), 2 * config_.intermediate_size));
    scratch.gated.Grow(kTileRows * config_.intermediate_size);
    scratch.branch.Grow(kTileRows * config_.hidden_size);
    const std::int64_t rows = AttentionRows(config_);
    scratch.scores.Grow(rows * kKeyBlock);
    scratch.values.Grow(rows * config_.head_dim);
    scratch.row_state.Grow(rows * 3);
    return scratch;
  }

  // ---- weights ----

  static constexpr bool kWidensMatrices = !std::is_same_v<T, W>;

  /// Holds a layer and makes room for its widened form. Two layers are held: the one in use and the next.
  Status AcquireLayer(std::int64_t layer) {
    const auto slot = static_cast<std::size_t>(layer % 2);
    DRAFTMILL_ASSIGN_OR_RETURN(views_[slot], store_->Acquire(layer));
    held_[slot] = layer;
    const LayerView<W>& view = views_[slot];
    LayerWeights<T>& weights = weights_[slot];
    weights.layout = view.layout;
    weights.vectors = view.vectors;
    if constexpr (kWidensMatrices) {
      widened_[slot].Grow(view.layout->matrices_total);
      weights.biases = view.vectors;
      weights.matrices = widened_[slot].data();
    } else {
      weights.matrices = view.matrices;
      if constexpr (std::is_same_v<T, float>) {
        weights.biases = view.vectors;
      } else {
        biases_[slot].Grow(view.layout->vectors_total);
        std::transform(view.vectors, view.vectors + view.layout->vectors_total, biases_[slot].data(), ToBf16);
        weights.biases = biases_[slot].data();
      }
    }
    return OkStatus();
  }

  void ReleaseLayer(std::int64_t layer) {
    store_->Release(layer);
    held_[static_cast<std::size_t>(layer % 2)] = -1;
  }
  void ReleaseAll() {
    for (const std::int64_t layer : held_) {
      if (layer >= 0) ReleaseLayer(layer);
    }
  }

  std::size_t WideningTasks(std::int64_t layer) const {
    if constexpr (!kWidensMatrices) return 0;
    return static_cast<std::size_t>((Weights(layer).layout->matrices_total + kWidenElements - 1) / kWidenElements);
  }

  /// Widens piece `i` of a layer's matrices.
  void WidenPiece(std::int64_t layer, std::size_t i) {
    if constexpr (kWidensMatrices) {
      const auto slot = static_cast<std::size_t>(layer % 2);
      const std::int64_t begin = static_cast<std::int64_t>(i) * kWidenElements;
      const std::int64_t count = std::min(kWidenElements, views_[slot].layout->matrices_total - begin);
      kernels_.widen(views_[slot].matrices + begin, widened_[slot].data() + begin, count);
    }
  }

  const LayerWeights<T>& Weights(std::int64_t layer) const { return weights_[static_cast<std::size_t>(layer % 2)]; }
  const T* Bias(std::int64_t layer, std::int64_t offset) const {
    return offset < 0 ? nullptr : Weights(layer).biases + offset;
  }
  const float* Vector(std::int64_t layer, std::int64_t offset) const {
    return offset < 0 ? nullptr : Weights(layer).vectors + offset;
  }

  // ---- steps of a tile ----

  float* Residual(const PackedTile& tile) { return residual_.data() + tile.first * config_.hidden_size; }

  Status Embed(const PackedBlock& block, const PackedTile& tile) {
    const auto ids = std::span(block.input_ids).subspan(static_cast<std::size_t>(tile.first), static_cast<std::size_t>(tile.rows));
    if constexpr (std::is_same_v<W, float>) {
      return store_->EmbeddingRows(ids, Residual(tile));
    } else {
      AlignedBuffer<W>& rows = ThreadScratch().embedded;
      rows.Grow(kTileRows * config_.hidden_size);
      DRAFTMILL_RETURN_IF_ERROR(store_->EmbeddingRows(ids, rows.data()));
      kernels_.widen(rows.data(), Residual(tile), tile.rows * config_.hidden_size);
      return OkStatus();
    }
  }

  void CaptureTile(const PackedTile& tile, std::int64_t layer) {
    const auto found = std::find(options_.layers.begin(), options_.layers.end(), static_cast<std::int32_t>(layer));
    if (found == options_.layers.end()) return;
    const std::int64_t offset = (found - options_.layers.begin()) * config_.hidden_size;
    const std::int64_t stride = static_cast<std::int64_t>(options_.layers.size()) * config_.hidden_size;
    if (tile.capture != nullptr) {
      return kernels_.capture({Residual(tile), tile.capture + offset, tile.rows, config_.hidden_size, stride});
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::memcpy(tile.capture_float + offset + r * stride, Residual(tile) + r * config_.hidden_size,
                  static_cast<std::size_t>(config_.hidden_size) * sizeof(float));
    }
  }

  void Norm(const PackedTile& tile, const float* weight, T* out) {
    kernels_.rms_norm({Residual(tile), weight, out, tile.rows, config_.hidden_size,
                       static_cast<float>(config_.norm_eps), norm_rounding_});
    for (std::int64_t r = tile.rows; r < kMinProductRows; ++r) {
      std::memset(static_cast<void*>(out + r * config_.hidden_size), 0, static_cast<std::size_t>(config_.hidden_size) * sizeof(T));
    }
  }

  void Product(const T* a, std::int64_t layer, std::int64_t weight, std::int64_t bias, T* out, std::int64_t rows,
               std::int64_t inputs, std::int64_t outputs) {
    Linear({a, Weights(layer).matrices + weight, Bias(layer, bias), out, std::max(rows, kMinProductRows), inputs, outputs});
  }

  /// Norm, q, k and v of a layer, rotated and laid out for attention.
  void BeginLayer(const PackedBlock& block, const PackedTile& tile, std::int64_t layer) {
    Scratch<T, W>& scratch = ThreadScratch();
    const LayerLayout& layout = *Weights(layer).layout;
    Norm(tile, Vector(layer, layout.input_norm), scratch.normed.data());
    Product(scratch.normed.data(), layer, layout.qkv, layout.qkv_bias, scratch.wide.data(), tile.rows,
            config_.hidden_size, config_.qkv_width());
    SplitRotateArgs<T> args;
    args.qkv = scratch.wide.data();
    args.positions = block.positions.data() + tile.first;
    args.cosines = rotary_.cosines();
    args.sines = rotary_.sines();
    args.q_norm = Vector(layer, layout.q_norm);
    args.k_norm = Vector(layer, layout.k_norm);
    args.q = q_.data() + tile.first * group_ * config_.head_dim;
    args.k = k_.data() + tile.first * config_.head_dim;
    args.v = v_.data() + tile.first * config_.head_dim;
    args.tokens = token_count_;
    args.rows = tile.rows;
    args.heads = config_.num_heads;
    args.kv_heads = config_.num_kv_heads;
    args.head_dim = config_.head_dim;
    args.rotary_dims = config_.rope.rotary_dims;
    args.epsilon = static_cast<float>(config_.norm_eps);
    args.rounds = rounds_;
    args.norm_rounding = norm_rounding_;
    kernels_.split_rotate(args);
  }

  /// Everything of a layer after attention.
  void FinishLayer(const PackedTile& tile, std::int64_t layer) {
    Scratch<T, W>& scratch = ThreadScratch();
    const LayerLayout& layout = *Weights(layer).layout;
    const std::int64_t elements = tile.rows * config_.hidden_size;
    Product(attended_.data() + tile.first * config_.q_width(), layer, layout.o, layout.o_bias, scratch.branch.data(),
            tile.rows, config_.q_width(), config_.hidden_size);
    kernels_.add_residual({Residual(tile), scratch.branch.data(), elements, rounds_});
    Norm(tile, Vector(layer, layout.mlp_norm), scratch.normed.data());
    Product(scratch.normed.data(), layer, layout.gate_up, layout.gate_up_bias, scratch.wide.data(), tile.rows,
            config_.hidden_size, 2 * config_.intermediate_size);
    kernels_.silu_mul({scratch.wide.data(), scratch.gated.data(), std::max(tile.rows, kMinProductRows),
                       config_.intermediate_size, rounds_});
    Product(scratch.gated.data(), layer, layout.down, layout.down_bias, scratch.branch.data(), tile.rows,
            config_.intermediate_size, config_.hidden_size);
    kernels_.add_residual({Residual(tile), scratch.branch.data(), elements, rounds_});
  }

  // ---- attention ----

  std::int64_t WindowOf(std::int64_t layer) const {
    const auto& sliding = config_.sliding_layers;
    const bool has = std::binary_search(sliding.begin(), sliding.end(), static_cast<std::int32_t>(layer));
    return has ? config_.sliding_window : 0;
  }

  void Attend(const AttentionTask& task, std::int64_t layer) {
    const std::int64_t window = WindowOf(layer);
    for (std::int64_t first = task.first_query; first < task.end_query; first += kQueryBlock) {
      AttendBlock(task, first, std::min(kQueryBlock, task.end_query - first), window);
    }
  }

  void AttendBlock(const AttentionTask& task, std::int64_t first_query, std::int64_t queries, std::int64_t window) {
    Scratch<T, W>& scratch = ThreadScratch();
    const std::int64_t dim = config_.head_dim;
    const std::int64_t rows = std::max(queries * group_, kMinProductRows);
    float* maximum = scratch.row_state.data();
    float* sum = maximum + AttentionRows(config_);
    float* rescale = sum + AttentionRows(config_);
    std::fill(maximum, maximum + rows, -std::numeric_limits<float>::infinity());
    std::fill(sum, sum + rows, 0.0F);
    const std::int64_t place = task.kv_head * token_count_ + task.sequence.first;
    const float* q = q_.data() + (place + first_query) * group_ * dim;
    const std::int64_t first_key = window > 0 ? std::max<std::int64_t>(0, first_query - window + 1) : 0;
    for (std::int64_t key = first_key; key < first_query + queries; key += kKeyBlock) {
      const std::int64_t keys = std::min(kKeyBlock, first_query + queries - key);
      MultiplyTransposed(q, k_.data() + (place + key) * dim, scratch.scores.data(), rows, keys, dim);
      kernels_.softmax_block({scratch.scores.data(), maximum, sum, rescale, rows, keys, group_, first_query, key, window,
                              static_cast<float>(config_.softmax_scale)});
      if (key > first_key) kernels_.scale_rows(scratch.values.data(), rescale, rows, dim);
      Multiply(scratch.scores.data(), v_.data() + (place + key) * dim, scratch.values.data(), rows, dim, keys, key > first_key);
    }
    StoreHeadsArgs<T> store;
    store.values = scratch.values.data();
    store.sum = sum;
    store.out = attended_.data() + (task.sequence.first + first_query) * config_.q_width() + task.kv_head * group_ * dim;
    store.rows = queries * group_;
    store.group = group_;
    store.head_dim = dim;
    store.out_stride = config_.q_width();
    store.rounds = rounds_;
    kernels_.store_heads(store);
  }

  const ModelConfig config_;
  const std::unique_ptr<WeightStore<W>> store_;
  const DecoderOptions options_;
  const DecoderKernels<T>& kernels_;
  const bool rounds_;
  const NormRounding norm_rounding_;
  const std::int64_t group_;
  RotaryTable rotary_;
  WorkerArena arena_;
  tbb::enumerable_thread_specific<Scratch<T, W>> scratch_;
  LayerView<W> views_[2];
  std::int64_t held_[2] = {-1, -1};
  AlignedBuffer<float> widened_[2];
  AlignedBuffer<T> biases_[2];
  LayerWeights<T> weights_[2];
  std::int64_t token_count_ = 0;
  AlignedBuffer<float> residual_;  ///< [tokens, hidden]; values of bfloat16 where the model is one
  AlignedBuffer<float> q_;         ///< [kv_heads][tokens][group * head_dim]
  AlignedBuffer<float> k_;         ///< [kv_heads][tokens][head_dim]
  AlignedBuffer<float> v_;
  AlignedBuffer<T> attended_;      ///< [tokens, heads * head_dim]
};

}  // namespace

template <typename T, typename W>
std::unique_ptr<BlockDecoder> MakeBlockDecoder(const ModelConfig& config, std::unique_ptr<WeightStore<W>> store,
                                               DecoderOptions options) {
  return std::make_unique<BlockDecoderOf<T, W>>(config, std::move(store), std::move(options));
}

template std::unique_ptr<BlockDecoder> MakeBlockDecoder<float, float>(const ModelConfig&, std::unique_ptr<WeightStore<float>>,
                                                                  DecoderOptions);
template std::unique_ptr<BlockDecoder> MakeBlockDecoder<float, Bf16>(const ModelConfig&, std::unique_ptr<WeightStore<Bf16>>,
                                                                  DecoderOptions);
template std::unique_ptr<BlockDecoder> MakeBlockDecoder<Bf16, Bf16>(const ModelConfig&, std::unique_ptr<WeightStore<Bf16>>,
                                                                  DecoderOptions);

}  // namespace draftmill
