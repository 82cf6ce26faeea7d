#include "stages/extract/device/device_attention.h"

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <tuple>

#include "kernels/attention_cuda.h"
#include "kernels/cuda_check.h"
#include "kernels/decoder_cuda.h"

namespace draftmill {
namespace {

constexpr int kHopper = 9;
constexpr std::int64_t kCudnnHeadDim = 128;
/// Of q and k of latent attention, with values of kCudnnHeadDim.
constexpr std::int64_t kCudnnLatentDim = 192;

at::TensorOptions OnThisDevice(at::ScalarType type) {
  int device = 0;
  cudaGetDevice(&device);
  return at::TensorOptions().dtype(type).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
}

class FlashAttention : public AttentionKernel {
 public:
  explicit FlashAttention(const AttentionShape& shape) : shape_(shape) {}

  Status Run(const AttentionArgs& args, cudaStream_t stream) override {
    const c10::InferenceMode inference;
    const DeviceSequences& sequences = args.sequences;
    const auto view = [&](const Bf16* data, std::int64_t heads, const HeadStrides& strides) {
      return at::from_blob(const_cast<Bf16*>(data),
                           {sequences.tokens, heads, shape_.head_dim},  // NOLINT: it is only read
                           {strides.token, strides.head, 1}, OnThisDevice(at::kBFloat16));
    };
    const at::Tensor starts = at::from_blob(const_cast<std::int32_t*>(sequences.cu_seqlens),  // NOLINT: it is only read
                                            {sequences.samples + 1}, OnThisDevice(at::kInt));
    const bool windowed = args.window > 0 && args.window < sequences.longest;
    const std::optional<std::int64_t> left = windowed ? std::optional(args.window - 1) : std::nullopt;
    const std::optional<std::int64_t> right = windowed ? std::optional<std::int64_t>(0) : std::nullopt;
    const auto result =
        at::_flash_attention_forward(view(args.q, shape_.heads, shape_.q), view(args.k, shape_.kv_heads, shape_.k),
                                     view(args.v, shape_.kv_heads, shape_.v), starts, starts, sequences.longest,
                                     sequences.longest, 0.0, !windowed, false, shape_.scale, left, right);
    at::from_blob(args.out, {sequences.tokens, shape_.heads, shape_.head_dim}, OnThisDevice(at::kBFloat16))
        .copy_(std::get<0>(result));
    return shape_.sinks ? JoinSinks(args, std::get<1>(result), stream) : OkStatus();
  }

 private:
  /// `lse` [heads, tokens]: the logarithms of the softmax's sums.
  Status JoinSinks(const AttentionArgs& args, const at::Tensor& lse, cudaStream_t stream) const {
    const std::int64_t tokens = args.sequences.tokens;
    if (lse.dim() != 2 || lse.size(0) != shape_.heads || lse.size(1) != tokens || !lse.is_contiguous()) {
      return Internal("FlashAttention gives its logarithms in another form than [heads, tokens]");
    }
    return cuda::ApplySinks({args.out, lse.const_data_ptr<float>(), args.sinks, tokens, shape_.heads, shape_.head_dim},
                            stream);
  }

  const AttentionShape shape_;
};

class BlockAttention : public AttentionKernel {
 public:
  explicit BlockAttention(const AttentionShape& shape) : shape_(shape) {}

  Status Run(const AttentionArgs& args, cudaStream_t stream) override {
    cuda::AttendArgs attend;
    attend.q = args.q;
    attend.k = args.k;
    attend.v = args.v;
    attend.out = args.out;
    attend.q_token = shape_.q.token;
    attend.q_head = shape_.q.head;
    attend.k_token = shape_.k.token;
    attend.k_head = shape_.k.head;
    attend.v_token = shape_.v.token;
    attend.v_head = shape_.v.head;
    attend.starts = args.sequences.cu_seqlens;
    attend.sequences = args.sequences.samples;
    attend.longest = args.sequences.longest;
    attend.heads = shape_.heads;
    attend.kv_heads = shape_.kv_heads;
    attend.head_dim = shape_.head_dim;
    attend.value_dim = shape_.value_dim;
    attend.scale = shape_.scale;
    attend.softcap = shape_.softcap;
    attend.window = args.window;
    attend.sinks = shape_.sinks ? args.sinks : nullptr;
    return cuda::Attend(attend, stream);
  }

 private:
  const AttentionShape shape_;
};

bool FlashTakes(const AttentionShape& shape) {
  return shape.head_dim == shape.value_dim && shape.head_dim % 8 == 0 && shape.softcap == 0;
}

/// Whether cuDNN takes it on a GPU of such a capability, windows aside.
bool CudnnTakes(const AttentionShape& shape, int major) {
  if (major < kHopper || shape.softcap > 0 || shape.sinks || shape.head_dim % 8 != 0) return false;
  return shape.value_dim == shape.head_dim ? shape.head_dim <= kCudnnHeadDim
                                           : shape.head_dim == kCudnnLatentDim && shape.value_dim == kCudnnHeadDim;
}

}  // namespace

std::unique_ptr<AttentionKernel> MakeBlockAttention(const AttentionShape& shape) {
  return std::make_unique<BlockAttention>(shape);
}

std::unique_ptr<AttentionKernel> MakeFlashAttention(const AttentionShape& shape) {
  return std::make_unique<FlashAttention>(shape);
}

Result<DeviceAttention> DeviceAttention::Make(const AttentionShape& shape) {
  DeviceAttention attention;
  attention.other_ = FlashTakes(shape) ? MakeFlashAttention(shape) : MakeBlockAttention(shape);
  int device = 0;
  int major = 0;
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaGetDevice(&device), "cudaGetDevice"));
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute"));
  if (CudnnTakes(shape, major)) {
    DRAFTMILL_ASSIGN_OR_RETURN(attention.cudnn_, MakeCudnnAttention(shape));
  }
  return attention;
}

Status DeviceAttention::Run(const AttentionArgs& args, cudaStream_t stream) {
  const bool windowed = args.window > 0 && args.window < args.sequences.longest;
  return (cudnn_ && !windowed ? cudnn_ : other_)->Run(args, stream);
}

}  // namespace draftmill
