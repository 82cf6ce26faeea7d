#include "stages/extract/device/device_latent_branch.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/decoder_cuda.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_products.h"
#include "stages/extract/device/device_rotary.h"

namespace draftmill {
namespace {

using cuda::Check;
using cuda::DeviceBuffer;

constexpr std::int64_t kFewestPositions = 1024;

AttentionShape ShapeOf(const ModelConfig& config) {
  const LatentAttention& latent = *config.latent;
  AttentionShape shape;
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_heads;
  shape.head_dim = config.head_dim;
  shape.value_dim = latent.v_dim;
  shape.scale = static_cast<float>(config.softmax_scale);
  shape.q = shape.k = {config.q_width(), config.head_dim};
  // Values stay where the product of the latent left them, behind each head's part of its key.
  shape.v = {config.num_heads * (latent.nope_dim + latent.v_dim), latent.nope_dim + latent.v_dim};
  return shape;
}

class LatentBranch : public AttentionBranch {
 public:
  LatentBranch(const ModelConfig& config, NormRounding rounding, DeviceAttention attention)
      : config_(config),
        latent_(*config.latent),
        rounding_(rounding),
        shape_(ShapeOf(config)),
        attention_(std::move(attention)),
        rotary_(config.rope) {}

  Status Reserve(std::int64_t rows, std::int64_t longest) override {
    if (rows <= rows_ && longest <= longest_) return OkStatus();
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    DRAFTMILL_RETURN_IF_ERROR(q_latent_.Grow(rows * latent_.q_lora_rank));
    DRAFTMILL_RETURN_IF_ERROR(kv_latent_.Grow(rows * Compressed()));
    DRAFTMILL_RETURN_IF_ERROR(normed_.Grow(rows * std::max(latent_.q_lora_rank, latent_.kv_lora_rank)));
    DRAFTMILL_RETURN_IF_ERROR(q_.Grow(rows * config_.q_width()));
    DRAFTMILL_RETURN_IF_ERROR(k_.Grow(rows * config_.q_width()));
    DRAFTMILL_RETURN_IF_ERROR(kv_.Grow(rows * shape_.v.token));
    DRAFTMILL_RETURN_IF_ERROR(attended_.Grow(rows * shape_.out_width()));
    rows_ = std::max(rows, rows_);
    if (longest <= longest_) return OkStatus();
    longest_ = std::max(kFewestPositions, longest);
    return rotary_.Grow(longest_);
  }

  Status Run(const AttentionBranchArgs& args, cudaStream_t stream) override {
    DRAFTMILL_RETURN_IF_ERROR(Queries(args, stream));
    DRAFTMILL_RETURN_IF_ERROR(KeysAndValues(args, stream));
    DRAFTMILL_RETURN_IF_ERROR(Assemble(args, stream));
    const std::int64_t tokens = args.sequences.tokens;
    DRAFTMILL_RETURN_IF_ERROR(Check(
        cudaMemsetAsync(attended_.data() + tokens * shape_.out_width(), 0,
                        static_cast<std::size_t>((args.rows - tokens) * shape_.out_width()) * sizeof(Bf16), stream),
        "cudaMemsetAsync"));  // attention leaves the padding rows alone; they must hold numbers
    DRAFTMILL_RETURN_IF_ERROR(attention_.Run(
        {q_.data(), k_.data(), kv_.data() + latent_.nope_dim, attended_.data(), args.sequences, 0}, stream));
    DeviceLinear({attended_.data(), args.layer.Matrix(args.layer.layout->o), nullptr, args.out, args.rows,
                  shape_.out_width(), config_.hidden_size});
    return OkStatus();
  }

  std::int32_t RotaryRow(std::int64_t position, std::int64_t tokens) const override {
    return rotary_.table().Row(position, tokens);
  }
  const AttentionShape& shape() const override { return shape_; }

 private:
  std::int64_t Compressed() const { return latent_.kv_lora_rank + latent_.rope_dim; }

  /// normed_ = norm of the leading `cols` values of each of `rows` rows of `latent`, which are `stride` apart.
  Status Norm(Bf16* latent, std::int64_t rows, std::int64_t cols, std::int64_t stride, const float* weight,
              cudaStream_t stream) {
    cuda::AddNormArgs args;
    args.residual = latent;
    args.residual_stride = stride;
    args.weight = weight;
    args.out = normed_.data();
    args.rows = rows;
    args.cols = cols;
    args.epsilon = static_cast<float>(latent_.latent_norm_eps);
    args.rounding = rounding_;
    args.one_plus = config_.norm_one_plus;
    return cuda::AddNorm(args, stream);
  }

  /// q_, through their latent where the model has one.
  Status Queries(const AttentionBranchArgs& args, cudaStream_t stream) {
    const DeviceLayer& layer = args.layer;
    const LayerLayout& layout = *layer.layout;
    const std::int64_t rank = latent_.q_lora_rank;
    if (rank == 0) {
      DeviceLinear({args.normed, layer.Matrix(layout.q_b), nullptr, q_.data(), args.rows, config_.hidden_size,
                    config_.q_width()});
      return OkStatus();
    }
    DeviceLinear(
        {args.normed, layer.Matrix(layout.q_a), nullptr, q_latent_.data(), args.rows, config_.hidden_size, rank});
    DRAFTMILL_RETURN_IF_ERROR(Norm(q_latent_.data(), args.rows, rank, rank, layer.Vector(layout.q_a_norm), stream));
    DeviceLinear({normed_.data(), layer.Matrix(layout.q_b), nullptr, q_.data(), args.rows, rank, config_.q_width()});
    return OkStatus();
  }

  /// kv_latent_, whose last values are the shared part of the keys, and kv_ from it.
  Status KeysAndValues(const AttentionBranchArgs& args, cudaStream_t stream) {
    const DeviceLayer& layer = args.layer;
    const LayerLayout& layout = *layer.layout;
    const std::int64_t rank = latent_.kv_lora_rank;
    DeviceLinear({args.normed, layer.Matrix(layout.kv_a), nullptr, kv_latent_.data(), args.rows, config_.hidden_size,
                  Compressed()});
    DRAFTMILL_RETURN_IF_ERROR(
        Norm(kv_latent_.data(), args.rows, rank, Compressed(), layer.Vector(layout.kv_a_norm), stream));
    DeviceLinear({normed_.data(), layer.Matrix(layout.kv_b), nullptr, kv_.data(), args.rows, rank, shape_.v.token});
    return OkStatus();
  }

  Status Assemble(const AttentionBranchArgs& args, cudaStream_t stream) {
    cuda::AssembleLatentArgs assemble;
    assemble.q = q_.data();
    assemble.kv = kv_.data();
    assemble.k_rope = kv_latent_.data() + latent_.kv_lora_rank;
    assemble.k = k_.data();
    assemble.positions = args.rotary_rows;
    assemble.cosines = rotary_.cosines();
    assemble.sines = rotary_.sines();
    assemble.rows = args.rows;
    assemble.k_rope_stride = Compressed();
    assemble.heads = config_.num_heads;
    assemble.nope_dim = latent_.nope_dim;
    assemble.rope_dim = latent_.rope_dim;
    assemble.v_dim = latent_.v_dim;
    assemble.interleaved = config_.rope.interleaved;
    return cuda::AssembleLatent(assemble, stream);
  }

  const ModelConfig config_;
  const LatentAttention latent_;
  const NormRounding rounding_;
  const AttentionShape shape_;
  DeviceAttention attention_;
  DeviceRotary rotary_;
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  DeviceBuffer<Bf16> q_latent_;   ///< [rows, q_lora_rank]
  DeviceBuffer<Bf16> kv_latent_;  ///< [rows, kv_lora_rank + rope]
  DeviceBuffer<Bf16> normed_;     ///< [rows, q_lora_rank or kv_lora_rank]
  DeviceBuffer<Bf16> q_;          ///< [rows, heads, nope + rope]
  DeviceBuffer<Bf16> k_;          ///< the same
  DeviceBuffer<Bf16> kv_;         ///< [rows, heads, nope + v]
  DeviceBuffer<Bf16> attended_;   ///< [rows, heads, v]
};

}  // namespace

Result<std::unique_ptr<AttentionBranch>> MakeLatentBranch(const ModelConfig& config, NormRounding rounding) {
  DRAFTMILL_ASSIGN_OR_RETURN(DeviceAttention attention, DeviceAttention::Make(ShapeOf(config)));
  return std::unique_ptr<AttentionBranch>(std::make_unique<LatentBranch>(config, rounding, std::move(attention)));
}

}  // namespace draftmill
