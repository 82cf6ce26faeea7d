// What the MLP, or the experts in its place, add to the residual stream on a GPU.
//
//   MlpBranch branch(config);
//   DRAFTMILL_RETURN_IF_ERROR(branch.Reserve(rows));
//   DRAFTMILL_RETURN_IF_ERROR(branch.Run({.layer = layer, .normed = normed, .out = branch_rows, .rows = rows}, stream));
//
// Rows are those of a whole block where a layer has routed experts: an expert takes its tokens from all of them, so other rows
// mean other products and, in the last bit, other results. Dense layers give the same for any cut at multiples of the
// products' shapes. One object belongs to one thread and one GPU. What torch throws passes through.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device_layer.h"
#include "stages/extract/model_config.h"

namespace draftmill {

struct MlpBranchArgs {
  DeviceLayer layer;
  const Bf16* normed = nullptr;   ///< [rows, hidden]
  Bf16* out = nullptr;            ///< [rows, hidden]
  std::int64_t rows = 0;
};

class MlpBranch {
 public:
  explicit MlpBranch(const ModelConfig& config) : config_(config) {}

  /// Makes room for so many rows. Waits for the GPU where something grows.
  Status Reserve(std::int64_t rows);
  Status Run(const MlpBranchArgs& args, cudaStream_t stream);

 private:
  const ModelConfig config_;
  cuda::DeviceBuffer<Bf16> gate_up_;   ///< [rows, 2 * intermediate]
  cuda::DeviceBuffer<Bf16> gated_;     ///< [rows, intermediate]
};

}  // namespace draftmill
