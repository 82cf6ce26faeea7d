#include "stages/extract/device/device_gated_mlp.h"

#include <algorithm>

#include "kernels/decoder_cuda.h"
#include "stages/extract/device/device_products.h"
#include "stages/extract/memory/device_branch_memory.h"

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

DeviceGatedMlp::DeviceGatedMlp(const ModelConfig& config)
    : hidden_(config.hidden_size),
      widest_(WidestMlp(config)),
      gate_(GateOf(config.activation)),
      limit_(static_cast<float>(config.swiglu_limit)) {}

Status DeviceGatedMlp::Reserve(std::int64_t rows) {
  const std::int64_t piece = std::min(rows, kMostPieceRows);
  if (piece * widest_ <= gated_.count()) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  DRAFTMILL_RETURN_IF_ERROR(wide_.Grow(piece * 2 * widest_));
  return gated_.Grow(piece * widest_);
}

Status DeviceGatedMlp::Run(const DeviceGatedMlpArgs& args, cudaStream_t stream) {
  for (std::int64_t first = 0; first < args.rows; first += kMostPieceRows) {
    DeviceGatedMlpArgs piece = args;
    piece.in += first * hidden_;
    piece.out += first * hidden_;
    piece.rows = std::min(kMostPieceRows, args.rows - first);
    DRAFTMILL_RETURN_IF_ERROR(RunPiece(piece, stream));
  }
  return OkStatus();
}

Status DeviceGatedMlp::RunPiece(const DeviceGatedMlpArgs& args, cudaStream_t stream) {
  DeviceLinear({args.in, args.gate_up, args.gate_up_bias, wide_.data(), args.rows, hidden_, 2 * args.width});
  DRAFTMILL_RETURN_IF_ERROR(cuda::Gate({wide_.data(), gated_.data(), args.rows, args.width, gate_, limit_}, stream));
  DeviceLinear({gated_.data(), args.down, args.down_bias, args.out, args.rows, args.width, hidden_});
  return OkStatus();
}

Status DeviceGatedMlp::RunGrouped(const DeviceGroupedMlpArgs& args, cudaStream_t stream) {
  const DeviceRows wide = DeviceGroupedLinear({args.rows, args.gate_up, args.gate_up_distance, args.row_ends,
                                               args.experts, args.count, hidden_, 2 * args.width});
  DRAFTMILL_RETURN_IF_ERROR(cuda::Gate({wide.data, gated_.data(), args.count, args.width, gate_, limit_}, stream));
  const DeviceRows given = DeviceGroupedLinear(
      {gated_.data(), args.down, args.down_distance, args.row_ends, args.experts, args.count, args.width, hidden_});
  const std::size_t bytes = static_cast<std::size_t>(args.count * hidden_) * sizeof(Bf16);
  return cuda::Check(cudaMemcpyAsync(args.rows, given.data, bytes, cudaMemcpyDeviceToDevice, stream),
                     "copy of what experts gave");
}

}  // namespace draftmill
