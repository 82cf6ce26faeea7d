#include "stages/extract/device/device_attention_branch.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/decoder_cuda.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_latent_branch.h"
#include "stages/extract/device/device_products.h"
#include "stages/extract/device/device_rotary.h"

namespace draftmill {
namespace {

using cuda::Check;
using cuda::DeviceBuffer;
using cuda::RotateHeadsArgs;

constexpr std::int64_t kFewestPositions = 1024;

AttentionShape ShapeOf(const ModelConfig& config) {
  AttentionShape shape;
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.value_dim = config.head_dim;
  shape.scale = static_cast<float>(config.softmax_scale);
  shape.softcap = static_cast<float>(config.attention_softcap);
  shape.sinks = config.attention_sinks;
  shape.q = shape.k = shape.v = {config.qkv_width(), config.head_dim};
  return shape;
}

class HeadsBranch : public AttentionBranch {
 public:
  HeadsBranch(const ModelConfig& config, NormRounding rounding, DeviceAttention attention)
      : config_(config),
        rounding_(rounding),
        shape_(ShapeOf(config)),
        attention_(std::move(attention)),
        rotary_(config.rope),
        local_rotary_(config.local_rope.value_or(config.rope)) {}

  Status Reserve(std::int64_t rows, std::int64_t longest) override {
    if (rows <= rows_ && longest <= longest_) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    DRAFTMILL_RETURN_IF_ERROR(qkv_.Grow(rows * config_.qkv_width()));
    DRAFTMILL_RETURN_IF_ERROR(attended_.Grow(rows * shape_.out_width()));
    rows_ = std::max(rows, rows_);
    if (longest <= longest_) return OkStatus();
    const std::int64_t positions = std::max(kFewestPositions, longest);
    DRAFTMILL_RETURN_IF_ERROR(rotary_.Grow(positions));
    if (config_.local_rope) DRAFTMILL_RETURN_IF_ERROR(local_rotary_.Grow(positions));
    longest_ = positions;
    return OkStatus();
  }

  Status Run(const AttentionBranchArgs& args, cudaStream_t stream) override {
    const DeviceLayer& layer = args.layer;
    const LayerLayout& layout = *layer.layout;
    DeviceLinear({args.normed, layer.Matrix(layout.qkv), layer.Bias(layout.qkv_bias), qkv_.data(), args.rows,
                  config_.hidden_size, config_.qkv_width()});
    DRAFTMILL_RETURN_IF_ERROR(Rotate(args, stream));
    DRAFTMILL_RETURN_IF_ERROR(Attend(args, stream));
    DeviceLinear({attended_.data(), layer.Matrix(layout.o), layer.Bias(layout.o_bias), args.out, args.rows,
                  shape_.out_width(), config_.hidden_size});
    return OkStatus();
  }

  /// Both tables have their rows in the same order: only one of them is ever longrope's.
  std::int32_t RotaryRow(std::int64_t position, std::int64_t tokens) const override {
    return rotary_.table().Row(position, tokens);
  }
  const AttentionShape& shape() const override { return shape_; }

 private:
  Status Rotate(const AttentionBranchArgs& layer_args, cudaStream_t stream) {
    const DeviceLayer& layer = layer_args.layer;
    const DeviceRotary& rotary = config_.local_rope && WindowOf(layer_args.index) > 0 ? local_rotary_ : rotary_;
    RotateHeadsArgs args;
    args.heads = qkv_.data();
    args.positions = layer_args.rotary_rows;
    args.cosines = rotary.cosines();
    args.sines = rotary.sines();
    args.q_norm = layer.Vector(layer.layout->q_norm);
    args.k_norm = layer.Vector(layer.layout->k_norm);
    args.rows = layer_args.rows;
    args.row_stride = config_.qkv_width();
    args.q_heads = config_.num_heads;
    args.k_heads = config_.num_kv_heads;
    args.head_dim = config_.head_dim;
    args.rotary_dims = rotary.dims();
    args.interleaved = config_.rope.interleaved;
    args.epsilon = static_cast<float>(config_.norm_eps);
    args.norm_rounding = rounding_;
    args.one_plus = config_.norm_one_plus;
    return cuda::RotateHeads(args, stream);
  }

  Status Attend(const AttentionBranchArgs& args, cudaStream_t stream) {
    // Attention leaves the padding rows alone; they must hold numbers.
    const std::int64_t tokens = args.sequences.tokens;
    DRAFTMILL_RETURN_IF_ERROR(Check(
        cudaMemsetAsync(attended_.data() + tokens * shape_.out_width(), 0,
                        static_cast<std::size_t>((args.rows - tokens) * shape_.out_width()) * sizeof(Bf16), stream),
        "cudaMemsetAsync"));
    const Bf16* const k = qkv_.data() + config_.q_width();
    return attention_.Run({qkv_.data(), k, k + config_.kv_width(), attended_.data(), args.sequences,
                           WindowOf(args.index), args.layer.Vector(args.layer.layout->sinks)},
                          stream);
  }

  std::int64_t WindowOf(std::int64_t layer) const {
    const auto& sliding = config_.sliding_layers;
    return std::binary_search(sliding.begin(), sliding.end(), static_cast<std::int32_t>(layer)) ? config_.sliding_window
                                                                                                : 0;
  }

  const ModelConfig config_;
  const NormRounding rounding_;
  const AttentionShape shape_;
  DeviceAttention attention_;
  DeviceRotary rotary_;
  DeviceRotary local_rotary_;  ///< of Gemma-3's sliding layers
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  DeviceBuffer<Bf16> qkv_;       ///< [rows, (heads + 2 kv_heads) * head_dim]
  DeviceBuffer<Bf16> attended_;  ///< [rows, heads * value_dim]
};

}  // namespace

Result<std::unique_ptr<AttentionBranch>> AttentionBranch::Make(const ModelConfig& config, NormRounding rounding) {
  if (config.latent) return MakeLatentBranch(config, rounding);
  DRAFTMILL_ASSIGN_OR_RETURN(DeviceAttention attention, DeviceAttention::Make(ShapeOf(config)));
  return std::unique_ptr<AttentionBranch>(std::make_unique<HeadsBranch>(config, rounding, std::move(attention)));
}

}  // namespace draftmill
