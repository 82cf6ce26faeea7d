// Routed experts of a layer on a GPU, over the rows of a whole block: one product for each expert and matrix, or one for
// several experts where they have too few rows to fill the GPU (expert_tiles.h).
//
//   DeviceExperts experts(config);
//   DRAFTMILL_RETURN_IF_ERROR(experts.Reserve(rows));
//   DRAFTMILL_RETURN_IF_ERROR(experts.Run({...}, mlp, stream));
//
// Rows are sorted by expert, spread, multiplied where they stand and summed for each token in the order of its
// experts. The host learns how many rows each expert has before it queues the products: Run waits for that once, while
// the GPU is busy with the shared experts and the spreading. Packed experts are expanded a few at a time, just before
// their products. One object belongs to one thread and one GPU. What torch throws passes through.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_gated_mlp.h"
#include "stages/extract/device/device_mlp_branch.h"

namespace draftmill {

class DeviceExperts {
 public:
  explicit DeviceExperts(const ModelConfig& config);

  /// Makes room for so many rows. Waits for the GPU where something grows.
  Status Reserve(std::int64_t rows);
  /// `args.layer` has routed experts. `mlp` has room for kMostPieceRows of the rows.
  Status Run(const MlpBranchArgs& args, DeviceGatedMlp& mlp, cudaStream_t stream);

 private:
  struct Matrices {
    const Bf16* gate_up = nullptr;
    const Bf16* down = nullptr;
  };
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };

  const MixtureOfExperts& moe() const { return *config_.experts; }
  Status ReadDevice();
  Status ReserveExpanded();
  Status Route(const MlpBranchArgs& args, cudaStream_t stream);
  Result<const Bf16*> RouterParts(const DeviceLayer& layer, std::int64_t& parts, cudaStream_t stream);
  Result<std::int64_t> CountParts(const DeviceLayer& layer);
  Status PlanSlots(std::int64_t rows, cudaStream_t stream);
  Status RunShared(const MlpBranchArgs& args, DeviceGatedMlp& mlp, cudaStream_t stream);
  Status RunExperts(const DeviceLayer& layer, DeviceGatedMlp& mlp, cudaStream_t stream);
  bool AreThin(const LayerLayout& layout) const;
  Status SendRowEnds(bool packed, cudaStream_t stream);
  std::int64_t GroupAt(std::int64_t first, bool packed) const;
  Status RunGroup(const DeviceLayer& layer, std::int64_t first, std::int64_t count, DeviceGatedMlp& mlp,
                  cudaStream_t stream);
  Status RunOne(const DeviceLayer& layer, std::int64_t expert, DeviceGatedMlp& mlp, cudaStream_t stream);
  Status Expand(const DeviceLayer& layer, std::int64_t first, std::int64_t count, cudaStream_t stream);
  Matrices MatricesOf(const DeviceLayer& layer, std::int64_t expert) const;
  /// Of `count` neighbouring experts.
  std::int64_t RowsOf(std::int64_t first, std::int64_t count) const {
    return host_first_slot_.data()[first + count] - host_first_slot_.data()[first];
  }
  Bf16* RowsAt(std::int64_t expert) {
    return expert_rows_.data() + host_first_slot_.data()[expert] * config_.hidden_size;
  }

  const ModelConfig config_;
  std::int64_t rows_ = 0;
  bool can_group_ = false;                                 ///< this GPU has grouped products
  std::int64_t multiprocessors_ = 0;                       ///< of this GPU
  std::map<const float*, std::int64_t> parts_of_routers_;  ///< by where the layer's vectors stand
  std::unique_ptr<CUevent_st, DestroyEvent> planned_;      ///< the experts' rows are known on the host
  cuda::DeviceBuffer<Bf16> router_parts_;                  ///< [parts, experts, hidden]
  cuda::DeviceBuffer<float> logits_;                       ///< [rows, parts, experts]
  cuda::DeviceBuffer<std::int32_t> chosen_;                ///< [rows, top_k]
  cuda::DeviceBuffer<float> weights_;                      ///< [rows, top_k]
  cuda::DeviceBuffer<std::int32_t> slots_;                 ///< [rows, top_k]
  cuda::DeviceBuffer<std::int32_t> first_slot_;            ///< [experts + 1]
  cuda::DeviceBuffer<std::int32_t> scratch_;
  cuda::DeviceBuffer<std::int32_t> row_ends_;         ///< [experts]: where each one's rows end in its group
  cuda::PinnedBuffer<std::int32_t> host_first_slot_;  ///< [experts + 1]
  cuda::PinnedBuffer<std::int32_t> host_row_ends_;    ///< [experts]
  cuda::DeviceBuffer<Bf16> expert_rows_;              ///< [rows * top_k, hidden]: what experts get, then what they give
  cuda::DeviceBuffer<Bf16> expanded_;                 ///< [kExpandedExperts][gate_up, down]
};

}  // namespace draftmill
