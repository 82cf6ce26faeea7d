#include "stages/extract/device_attention.h"

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <tuple>

#include "kernels/cuda_check.h"

namespace draftmill {
namespace {

constexpr int kHopper = 9;
constexpr std::int64_t kCudnnHeadDim = 128;

at::TensorOptions OnThisDevice(at::ScalarType type) {
  int device = 0;
  cudaGetDevice(&device);
  return at::TensorOptions().dtype(type).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
}

class FlashAttention : public AttentionKernel {
 public:
  explicit FlashAttention(const AttentionShape& shape) : shape_(shape) {}

  Status Run(const AttentionArgs& args, cudaStream_t /*stream: the current one of ATen*/) override {
    const c10::InferenceMode inference;
    const DeviceSequences& sequences = args.sequences;
    const auto view = [&](const Bf16* data, std::int64_t heads, const HeadStrides& strides) {
      return at::from_blob(const_cast<Bf16*>(data), {sequences.tokens, heads, shape_.head_dim},  // NOLINT: it is only read
                           {strides.token, strides.head, 1}, OnThisDevice(at::kBFloat16));
    };
    const at::Tensor starts = at::from_blob(const_cast<std::int32_t*>(sequences.cu_seqlens),  // NOLINT: it is only read
                                            {sequences.samples + 1}, OnThisDevice(at::kInt));
    const bool windowed = args.window > 0 && args.window < sequences.longest;
    const std::optional<std::int64_t> left = windowed ? std::optional(args.window - 1) : std::nullopt;
    const std::optional<std::int64_t> right = windowed ? std::optional<std::int64_t>(0) : std::nullopt;
    const auto result = at::_flash_attention_forward(
        view(args.q, shape_.heads, shape_.q), view(args.k, shape_.kv_heads, shape_.k),
        view(args.v, shape_.kv_heads, shape_.v), starts, starts, sequences.longest, sequences.longest, 0.0, !windowed, false,
        shape_.scale, left, right);
    at::from_blob(args.out, {sequences.tokens, shape_.heads, shape_.head_dim}, OnThisDevice(at::kBFloat16))
        .copy_(std::get<0>(result));
    return OkStatus();
  }

 private:
  const AttentionShape shape_;
};

}  // namespace

std::unique_ptr<AttentionKernel> MakeFlashAttention(const AttentionShape& shape) {
  return std::make_unique<FlashAttention>(shape);
}

Result<DeviceAttention> DeviceAttention::Make(const AttentionShape& shape) {
  DeviceAttention attention;
  attention.flash_ = MakeFlashAttention(shape);
  int device = 0;
  int major = 0;
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaGetDevice(&device), "cudaGetDevice"));
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute"));
  if (major >= kHopper && shape.head_dim <= kCudnnHeadDim) {
    DRAFTMILL_ASSIGN_OR_RETURN(attention.cudnn_, MakeCudnnAttention(shape));
  }
  return attention;
}

Status DeviceAttention::Run(const AttentionArgs& args, cudaStream_t stream) {
  const bool windowed = args.window > 0 && args.window < args.sequences.longest;
  return (cudnn_ && !windowed ? cudnn_ : flash_)->Run(args, stream);
}

}  // namespace draftmill
