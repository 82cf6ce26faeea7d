// Where a GPU's layers come from when they are not all on it: pinned host memory, the disk, or the GPUs' parts.
//
//   DRAFTMILL_RETURN_IF_ERROR(source->Queue(layer, layout, matrices, packed, stream));
//
// Queue begins to copy a layer's matrices and packed experts on `stream`, which belongs to the GPU that is current; the
// copy has arrived when what is queued on the stream has been done. Layers are asked for in ascending order, over and
// over. A source is used by one thread; sources of one model may be used by several at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"
#include "stages/extract/model/layer_layout.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {

class LayerSource {
 public:
  virtual ~LayerSource() = default;
  virtual Status Queue(std::int64_t layer, const LayerLayout& layout, Bf16* matrices, std::byte* packed,
                       cudaStream_t stream) = 0;
  /// Whether layer 0 may be asked for before it is known that another pass follows.
  virtual bool is_always_there() const { return true; }
  /// The pass is over, or given up: nothing that was handed out is held any longer. Waits for copies.
  virtual Status EndPass() { return OkStatus(); }
};

/// A GPU's part of one layer.
struct ShardedPart {
  cuda::DeviceBuffer<Bf16> matrices;
  cuda::DeviceBuffer<std::byte> packed;
};

/// From the parts of all GPUs: parts[g][layer] lies on devices[g]. One source for each GPU. Where two GPUs have no
/// direct way to each other, the driver goes through the host.
Result<std::vector<std::unique_ptr<LayerSource>>> MakePeerSources(const std::vector<int>& devices,
                                                                  std::vector<std::vector<ShardedPart>> parts);

/// From a store that holds everything in memory, which is pinned. One source for each of `count` GPUs.
Result<std::vector<std::unique_ptr<LayerSource>>> MakeHostSources(std::int64_t layers,
                                                                  const std::shared_ptr<WeightStore<Bf16>>& store,
                                                                  std::size_t count);

/// From a store that reads each layer when its turn comes: once for all GPUs that are on the same pass (layer_feed.h).
/// Queue waits for the disk. One source for each of `count` GPUs.
std::vector<std::unique_ptr<LayerSource>> MakeDiskSources(std::int64_t layers, std::shared_ptr<WeightStore<Bf16>> store,
                                                          std::size_t count);

}  // namespace draftmill
