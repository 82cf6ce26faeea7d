#include "stages/extract/device/device_mlp_branch.h"

#include "stages/extract/device/device_experts.h"
#include "stages/extract/device/device_gated_mlp.h"

namespace draftmill {

MlpBranch::MlpBranch(const ModelConfig& config)
    : intermediate_(config.intermediate_size),
      choices_(config.experts ? config.experts->top_k : 1),
      mlp_(std::make_unique<DeviceGatedMlp>(config)),
      experts_(config.experts ? std::make_unique<DeviceExperts>(config) : nullptr) {}
MlpBranch::~MlpBranch() = default;

Status MlpBranch::Reserve(std::int64_t rows) {
  // Experts that are taken together have rows for every choice.
  DRAFTMILL_RETURN_IF_ERROR(mlp_->Reserve(rows * choices_));
  return experts_ ? experts_->Reserve(rows) : OkStatus();
}

Status MlpBranch::Run(const MlpBranchArgs& args, cudaStream_t stream) {
  const LayerLayout& layout = *args.layer.layout;
  if (layout.has_experts()) return experts_->Run(args, *mlp_, stream);
  return mlp_->Run(
      {args.normed, args.out, args.rows, intermediate_, args.layer.Matrix(layout.gate_up),
       args.layer.Bias(layout.gate_up_bias), args.layer.Matrix(layout.down), args.layer.Bias(layout.down_bias)},
      stream);
}

}  // namespace draftmill
