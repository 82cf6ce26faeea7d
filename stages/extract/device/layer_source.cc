#include "stages/extract/device/layer_source.h"

#include <map>
#include <mutex>
#include <utility>

#include "stages/extract/device/device_handles.h"
#include "stages/extract/weights/layer_feed.h"

namespace draftmill {
namespace {

using cuda::Check;

// ---- parts on the GPUs ----

/// The parts, for all sources of a model.
struct ShardedLayers {
  std::vector<int> devices;
  std::vector<std::vector<ShardedPart>> parts;  ///< [GPU][layer]
};

class PeerSource : public LayerSource {
 public:
  PeerSource(std::shared_ptr<const ShardedLayers> layers, std::size_t self) : layers_(std::move(layers)), self_(self) {}

  Status Queue(std::int64_t layer, const LayerLayout& layout, Bf16* matrices, std::byte* packed,
               cudaStream_t stream) override {
    const auto parts = static_cast<std::int64_t>(layers_->devices.size());
    for (std::int64_t i = 0; i < parts; ++i) {
      // Each begins with its own part and goes round, so that no two read from the same GPU at once.
      const auto gpu = static_cast<std::size_t>((static_cast<std::int64_t>(self_) + i) % parts);
      const ShardedPart& part = layers_->parts[gpu][static_cast<std::size_t>(layer)];
      const LayerPart range = PartOf(layout, static_cast<std::int64_t>(gpu), parts);
      DRAFTMILL_RETURN_IF_ERROR(
          Copy(gpu, matrices + range.first_matrix, part.matrices.data(), range.matrices_count * 2, stream));
      if (range.packed_bytes == 0) continue;
      DRAFTMILL_RETURN_IF_ERROR(Copy(gpu, packed + range.first_packed, part.packed.data(), range.packed_bytes, stream));
    }
    return OkStatus();
  }

 private:
  Status Copy(std::size_t gpu, void* to, const void* from, std::int64_t bytes, cudaStream_t stream) const {
    if (bytes == 0) return OkStatus();
    const auto count = static_cast<std::size_t>(bytes);
    if (gpu == self_) {
      return Check(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream), "copy of a layer's part");
    }
    return Check(cudaMemcpyPeerAsync(to, layers_->devices[self_], from, layers_->devices[gpu], count, stream),
                 "copy between GPUs");
  }

  const std::shared_ptr<const ShardedLayers> layers_;
  const std::size_t self_;
};

/// The direct way between each two GPUs, where there is one.
Status ConnectPeers(const std::vector<int>& devices) {
  for (const int device : devices) {
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaSetDevice(device), "cudaSetDevice"));
    for (const int peer : devices) {
      int possible = 0;
      if (peer == device) continue;
      DRAFTMILL_RETURN_IF_ERROR(Check(cudaDeviceCanAccessPeer(&possible, device, peer), "cudaDeviceCanAccessPeer"));
      if (possible == 0) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
      if (error != cudaSuccess) cudaGetLastError();  // no error of what is queued later
      if (error != cudaErrorPeerAccessAlreadyEnabled) {
        DRAFTMILL_RETURN_IF_ERROR(Check(error, "cudaDeviceEnablePeerAccess"));
      }
    }
  }
  return OkStatus();
}

// ---- host memory ----

/// Host memory that was allocated without CUDA, pinned for as long as this lives.
class PinnedRange {
 public:
  static Result<PinnedRange> Make(const void* memory, std::int64_t bytes) {
    PinnedRange range;
    if (bytes == 0) return range;
    void* const start = const_cast<void*>(memory);  // NOLINT: pinning does not write
    const cudaError_t error = cudaHostRegister(start, static_cast<std::size_t>(bytes), cudaHostRegisterPortable);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return OutOfMemory("pinning " + std::to_string(bytes) +
                         " bytes of host memory for streamed weights: " + cudaGetErrorString(error) +
                         "; lower limits.memory, so that they are streamed from disk. What is published is safe");
    }
    range.memory_.reset(start);
    return range;
  }

 private:
  struct Unpin {
    void operator()(void* memory) const { cudaHostUnregister(memory); }
  };
  std::unique_ptr<void, Unpin> memory_;
};

Status CopyLayer(const LayerView<Bf16>& view, Bf16* matrices, std::byte* packed, cudaStream_t stream) {
  const auto copy = [stream](void* to, const void* from, std::int64_t bytes) {
    if (bytes == 0) return OkStatus();
    return Check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
                 "copy of a layer");
  };
  DRAFTMILL_RETURN_IF_ERROR(copy(matrices, view.matrices, view.layout->matrices_total * 2));
  return copy(packed, view.packed, view.layout->packed.bytes);
}

/// All layers in pinned memory, for all sources of a model. Members go in reverse: pins before what they pin.
struct HostLayers {
  std::shared_ptr<WeightStore<Bf16>> store;
  std::vector<LayerView<Bf16>> views;
  std::vector<PinnedRange> pins;
};

class HostSource : public LayerSource {
 public:
  explicit HostSource(std::shared_ptr<const HostLayers> layers) : layers_(std::move(layers)) {}

  Status Queue(std::int64_t layer, const LayerLayout& /*layout*/, Bf16* matrices, std::byte* packed,
               cudaStream_t stream) override {
    return CopyLayer(layers_->views[static_cast<std::size_t>(layer)], matrices, packed, stream);
  }

 private:
  const std::shared_ptr<const HostLayers> layers_;
};

// ---- the disk ----

/// What the sources of a model share.
struct DiskLayers {
  DiskLayers(std::shared_ptr<WeightStore<Bf16>> store, std::int64_t layers, int readers)
      : feed(std::move(store), layers, readers) {}

  /// The store's places are the same all along. Where one cannot be pinned, copies from it are slower, no more.
  void Pin(const void* memory, std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    if (bytes == 0 || pins.contains(memory)) return;
    Result<PinnedRange> pin = PinnedRange::Make(memory, bytes);
    pins.emplace(memory, pin.ok() ? std::move(*pin) : PinnedRange());
  }

  LayerFeed feed;
  std::mutex mutex;
  std::map<const void*, PinnedRange> pins;
};

class DiskSource : public LayerSource {
 public:
  DiskSource(std::shared_ptr<DiskLayers> layers, int reader) : layers_(std::move(layers)), reader_(reader) {}
  ~DiskSource() override { static_cast<void>(EndPass()); }

  Status Queue(std::int64_t layer, const LayerLayout& /*layout*/, Bf16* matrices, std::byte* packed,
               cudaStream_t stream) override {
    if (!arrived_) {
      DRAFTMILL_ASSIGN_OR_RETURN(arrived_, MakeEvent());
    }
    DRAFTMILL_RETURN_IF_ERROR(GiveBack());
    DRAFTMILL_ASSIGN_OR_RETURN(const LayerView<Bf16> view, layers_->feed.Take(reader_, layer));
    is_held_ = true;
    layers_->Pin(view.matrices, view.layout->matrices_total * 2);
    layers_->Pin(view.packed, view.layout->packed.bytes);
    DRAFTMILL_RETURN_IF_ERROR(CopyLayer(view, matrices, packed, stream));
    return Check(cudaEventRecord(arrived_.get(), stream), "cudaEventRecord");
  }

  bool is_always_there() const override { return false; }

  Status EndPass() override {
    const Status status = GiveBack();
    layers_->feed.Leave(reader_);
    return status;
  }

 private:
  /// The layer that was copied last goes back once it has arrived.
  Status GiveBack() {
    if (!is_held_) return OkStatus();
    is_held_ = false;
    const Status status = Check(cudaEventSynchronize(arrived_.get()), "waiting for a layer's copy");
    layers_->feed.Done(reader_);
    return status;
  }

  const std::shared_ptr<DiskLayers> layers_;
  const int reader_;
  Event arrived_;
  bool is_held_ = false;
};

}  // namespace

Result<std::vector<std::unique_ptr<LayerSource>>> MakePeerSources(const std::vector<int>& devices,
                                                                  std::vector<std::vector<ShardedPart>> parts) {
  DRAFTMILL_RETURN_IF_ERROR(ConnectPeers(devices));
  const auto layers = std::make_shared<const ShardedLayers>(ShardedLayers{devices, std::move(parts)});
  std::vector<std::unique_ptr<LayerSource>> sources;
  for (std::size_t gpu = 0; gpu < devices.size(); ++gpu) sources.push_back(std::make_unique<PeerSource>(layers, gpu));
  return sources;
}

Result<std::vector<std::unique_ptr<LayerSource>>> MakeHostSources(std::int64_t layers,
                                                                  const std::shared_ptr<WeightStore<Bf16>>& store,
                                                                  std::size_t count) {
  auto host = std::make_shared<HostLayers>();
  host->store = store;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    DRAFTMILL_ASSIGN_OR_RETURN(const LayerView<Bf16> view, store->Acquire(layer));
    host->views.push_back(view);
    DRAFTMILL_ASSIGN_OR_RETURN(PinnedRange matrices, PinnedRange::Make(view.matrices, view.layout->matrices_total * 2));
    DRAFTMILL_ASSIGN_OR_RETURN(PinnedRange packed, PinnedRange::Make(view.packed, view.layout->packed.bytes));
    host->pins.push_back(std::move(matrices));
    host->pins.push_back(std::move(packed));
  }
  std::vector<std::unique_ptr<LayerSource>> sources;
  for (std::size_t i = 0; i < count; ++i) sources.push_back(std::make_unique<HostSource>(host));
  return sources;
}

std::vector<std::unique_ptr<LayerSource>> MakeDiskSources(std::int64_t layers, std::shared_ptr<WeightStore<Bf16>> store,
                                                          std::size_t count) {
  const auto shared = std::make_shared<DiskLayers>(std::move(store), layers, static_cast<int>(count));
  std::vector<std::unique_ptr<LayerSource>> sources;
  for (std::size_t i = 0; i < count; ++i) sources.push_back(std::make_unique<DiskSource>(shared, static_cast<int>(i)));
  return sources;
}

}  // namespace draftmill
