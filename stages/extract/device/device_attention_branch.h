// What attention adds to the residual stream of a batch on a GPU: projections, rotation, attention, output projection.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto branch, AttentionBranch::Make(config, rounding));
//   DRAFTMILL_RETURN_IF_ERROR(branch->Reserve(rows, longest));
//   DRAFTMILL_RETURN_IF_ERROR(branch->Run({.index = 3, .layer = layer, .normed = normed, .out = branch_rows, ...}, stream));
//
// Run queues and does not wait; it allocates nothing of its own. One object belongs to one thread and one GPU. What torch
// throws passes through.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "kernels/decoder_cpu.h"
#include "stages/extract/device/device_attention.h"
#include "stages/extract/device/device_layer.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

struct AttentionBranchArgs {
  std::int64_t index = 0;  ///< of the layer
  DeviceLayer layer;
  const Bf16* normed = nullptr;               ///< [rows, hidden]
  Bf16* out = nullptr;                        ///< [rows, hidden]
  std::int64_t rows = 0;                      ///< those beyond the sequences' tokens are padding and hold numbers
  const std::int32_t* rotary_rows = nullptr;  ///< [rows], on the GPU: see RotaryRow
  DeviceSequences sequences;
};

class AttentionBranch {
 public:
  /// For the GPU that is current.
  static Result<std::unique_ptr<AttentionBranch>> Make(const ModelConfig& config, NormRounding rounding);
  virtual ~AttentionBranch() = default;

  /// Makes room for batches of so many rows and samples of so many tokens. Waits for the GPU where something grows.
  virtual Status Reserve(std::int64_t rows, std::int64_t longest) = 0;
  virtual Status Run(const AttentionBranchArgs& args, cudaStream_t stream) = 0;
  /// Where a position of a sample of so many tokens stands in the tables of cosines and sines.
  virtual std::int32_t RotaryRow(std::int64_t position, std::int64_t tokens) const = 0;
  /// For the offsets of DeviceSequences.
  virtual const AttentionShape& shape() const = 0;
};

}  // namespace draftmill
