// A model's weights as a GPU uses them, wherever they live: each layer in the form of its LayerLayout, so that the
// decoder finds every part at the same offset as on the CPU.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(LoadedDeviceWeights loaded, LoadDeviceWeights({&model, layers, plan.weights, ...}));
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceLayer layer, weights.Acquire(3, stream));
//   ... queue work on `stream` ...
//   DRAFTMILL_RETURN_IF_ERROR(weights.Release(3, stream));
//
// Embedding, norms and biases are on every GPU; matrices and packed experts are there (resident), or are copied into
// one of two buffers while the layer before computes: from pinned host memory or from disk (streamed), or from the
// parts that the GPUs hold together (sharded), each GPU at its own time; layers from disk are read once for all GPUs.
// The bytes are the same, so is what is computed.
//
// Layers are acquired in ascending order, over and over, one at a time. One object belongs to one GPU and one thread.
// Errors: kDevice, kOutOfMemory; from disk also those of WeightStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/bfloat16.h"
#include "kernels/device_buffer.h"
#include "stages/extract/device/device_layer.h"
#include "stages/extract/memory/device_policy.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/weights/weight_store.h"

namespace draftmill {

/// What is on every GPU, whatever the policy.
struct CommonWeights {
  struct Vectors {
    LayerLayout layout;
    cuda::DeviceBuffer<float> values;
    cuda::DeviceBuffer<Bf16> biases;
  };
  cuda::DeviceBuffer<Bf16> embedding;
  std::vector<Vectors> layers;
};

class DeviceWeights {
 public:
  explicit DeviceWeights(CommonWeights common) : common_(std::move(common)) {}
  virtual ~DeviceWeights() = default;
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  const Bf16* embedding() const { return common_.embedding.data(); }
  /// Layout, vectors and biases of any layer at any time; its matrices are null.
  DeviceLayer Vectors(std::int64_t index) const;

  /// The whole layer, for what is queued on `stream` from now on until its Release.
  virtual Result<DeviceLayer> Acquire(std::int64_t index, cudaStream_t stream) = 0;
  /// What uses the layer was queued. May begin to bring the next one, and wait for the disk.
  virtual Status Release(std::int64_t index, cudaStream_t stream) = 0;
  /// A pass was begun that will not reach the last layer; nothing that was queued uses a layer any more.
  virtual void Abandon() {}

 protected:
  std::int64_t layers() const { return static_cast<std::int64_t>(common_.layers.size()); }
  const LayerLayout& Layout(std::int64_t index) const { return common_.layers[static_cast<std::size_t>(index)].layout; }

 private:
  const CommonWeights common_;
};

struct DeviceWeightsRequest {
  const ModelFolder* model = nullptr;
  std::int64_t layers = 0;  ///< what lies above the last captured layer is not loaded
  DeviceWeightPolicy policy = DeviceWeightPolicy::kResident;
  bool from_memory = true;        ///< kStreamed
  std::vector<int> devices;       ///< as the CUDA runtime numbers them
  std::int64_t memory_bytes = 0;  ///< what loading may take on the host; 0: no limit
};

struct LoadedDeviceWeights {
  std::vector<std::unique_ptr<DeviceWeights>> by_device;  ///< as the request's devices
  std::string digest;                                     ///< as WeightStore has it
};

/// Loads onto the GPUs, or prepares to. May throw what torch throws.
Result<LoadedDeviceWeights> LoadDeviceWeights(const DeviceWeightsRequest& request);

}  // namespace draftmill
