// What the MLP, or the experts in its place, add to the residual stream on a GPU.
//
//   MlpBranch branch(config);
//   DRAFTMILL_RETURN_IF_ERROR(branch.Reserve(rows));
//   DRAFTMILL_RETURN_IF_ERROR(branch.Run({.layer = layer, .normed = normed, .out = branch_rows, .rows = rows},
//   stream));
//
// Rows are those of a whole block where a layer has routed experts: an expert takes its tokens from all of them, so
// other rows mean other products and, in the last bit, other results. Dense layers give the same for any cut at
// multiples of the products' shapes. Layers with experts wait for the GPU once (device_experts.h). One object belongs
// to one thread and one GPU. What torch throws passes through.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "stages/extract/device/device_layer.h"
#include "stages/extract/model/model_config.h"

// As the CUDA runtime declares it: this header needs no toolkit.
using cudaStream_t = struct CUstream_st*;

namespace draftmill {

class DeviceExperts;
class DeviceGatedMlp;

struct MlpBranchArgs {
  DeviceLayer layer;
  const Bf16* normed = nullptr;  ///< [rows, hidden]
  Bf16* out = nullptr;           ///< [rows, hidden]
  std::int64_t rows = 0;
};

class MlpBranch {
 public:
  explicit MlpBranch(const ModelConfig& config);
  ~MlpBranch();
  MlpBranch(const MlpBranch&) = delete;
  MlpBranch& operator=(const MlpBranch&) = delete;

  /// Makes room for so many rows. Waits for the GPU where something grows.
  Status Reserve(std::int64_t rows);
  Status Run(const MlpBranchArgs& args, cudaStream_t stream);

 private:
  const std::int64_t intermediate_;
  const std::int64_t choices_;  ///< experts of a row; 1 where the model has none
  const std::unique_ptr<DeviceGatedMlp> mlp_;
  const std::unique_ptr<DeviceExperts> experts_;  ///< null where the model has none
};

}  // namespace draftmill
