#include "stages/extract/device_mlp_branch.h"

#include "kernels/decoder_cuda.h"
#include "stages/extract/device_products.h"

namespace draftmill {
namespace {

GateKind GateOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return GateKind::kSilu;
    case Activation::kGeluTanh: return GateKind::kGeluTanh;
    case Activation::kClampedSwiglu: return GateKind::kClampedSwiglu;
  }
  return GateKind::kSilu;
}

}  // namespace

Status MlpBranch::Reserve(std::int64_t rows) {
  if (rows * config_.intermediate_size <= gated_.count()) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  DRAFTMILL_RETURN_IF_ERROR(gate_up_.Grow(rows * 2 * config_.intermediate_size));
  return gated_.Grow(rows * config_.intermediate_size);
}

Status MlpBranch::Run(const MlpBranchArgs& args, cudaStream_t stream) {
  const LayerLayout& layout = *args.layer.layout;
  DeviceLinear({args.normed, args.layer.Matrix(layout.gate_up), args.layer.Bias(layout.gate_up_bias), gate_up_.data(), args.rows,
                config_.hidden_size, 2 * config_.intermediate_size});
  DRAFTMILL_RETURN_IF_ERROR(cuda::Gate({gate_up_.data(), gated_.data(), args.rows, config_.intermediate_size,
                                        GateOf(config_.activation), static_cast<float>(config_.swiglu_limit)}, stream));
  DeviceLinear({gated_.data(), args.layer.Matrix(layout.down), args.layer.Bias(layout.down_bias), args.out, args.rows,
                config_.intermediate_size, config_.hidden_size});
  return OkStatus();
}

}  // namespace draftmill
