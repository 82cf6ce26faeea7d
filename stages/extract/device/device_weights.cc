#include "stages/extract/device/device_weights.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "stages/extract/device/fetched_weights.h"
#include "stages/extract/device/layer_source.h"

namespace draftmill {
namespace {

using cuda::Check;
using cuda::DeviceBuffer;

constexpr std::int64_t kEmbeddingPieceBytes = std::int64_t{64} << 20;

/// The parts of a layer that are fetched or stay.
struct Matrices {
  DeviceBuffer<Bf16> matrices;
  DeviceBuffer<std::byte> packed;
};

class ResidentWeights : public DeviceWeights {
 public:
  ResidentWeights(CommonWeights common, std::vector<Matrices> matrices)
      : DeviceWeights(std::move(common)), matrices_(std::move(matrices)) {}

  Result<DeviceLayer> Acquire(std::int64_t index, cudaStream_t /*stream*/) override {
    DeviceLayer layer = Vectors(index);
    layer.matrices = matrices_[static_cast<std::size_t>(index)].matrices.data();
    layer.packed = matrices_[static_cast<std::size_t>(index)].packed.data();
    return layer;
  }
  Status Release(std::int64_t, cudaStream_t) override { return OkStatus(); }

 private:
  const std::vector<Matrices> matrices_;
};

Result<DeviceBuffer<Bf16>> UploadEmbedding(const ModelConfig& config, WeightStore<Bf16>& store) {
  DRAFTMILL_ASSIGN_OR_RETURN(auto embedding, DeviceBuffer<Bf16>::Make(config.vocab_size * config.hidden_size));
  const std::int64_t piece = std::max<std::int64_t>(1, kEmbeddingPieceBytes / (2 * config.hidden_size));
  std::vector<std::int32_t> ids;
  std::vector<Bf16> rows;
  for (std::int64_t first = 0; first < config.vocab_size; first += piece) {
    const std::int64_t count = std::min(piece, config.vocab_size - first);
    ids.resize(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first));
    rows.resize(static_cast<std::size_t>(count * config.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(store.EmbeddingRows(ids, rows.data()));
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaMemcpy(embedding.data() + first * config.hidden_size, rows.data(),
                                               rows.size() * sizeof(Bf16), cudaMemcpyHostToDevice),
                                    "copy of the embedding"));
  }
  return embedding;
}

Result<CommonWeights::Vectors> UploadVectors(const LayerView<Bf16>& view) {
  CommonWeights::Vectors vectors;
  vectors.layout = *view.layout;
  const std::span<const float> values(view.vectors, static_cast<std::size_t>(view.layout->vectors_total));
  std::vector<Bf16> biases(values.size());
  std::transform(values.begin(), values.end(), biases.begin(), ToBf16);
  DRAFTMILL_ASSIGN_OR_RETURN(vectors.values, DeviceBuffer<float>::Make(view.layout->vectors_total));
  DRAFTMILL_ASSIGN_OR_RETURN(vectors.biases, DeviceBuffer<Bf16>::Make(view.layout->vectors_total));
  DRAFTMILL_RETURN_IF_ERROR(vectors.values.Upload(values));
  DRAFTMILL_RETURN_IF_ERROR(vectors.biases.Upload(biases));
  return vectors;
}

/// The `part`-th of `parts` of a layer's matrices and packed experts.
Result<Matrices> UploadPart(const LayerView<Bf16>& view, std::int64_t part, std::int64_t parts) {
  const LayerPart range = PartOf(*view.layout, part, parts);
  Matrices matrices;
  DRAFTMILL_ASSIGN_OR_RETURN(matrices.matrices, DeviceBuffer<Bf16>::Make(range.matrices_count));
  DRAFTMILL_ASSIGN_OR_RETURN(matrices.packed, DeviceBuffer<std::byte>::Make(range.packed_bytes));
  DRAFTMILL_RETURN_IF_ERROR(
      matrices.matrices.Upload({view.matrices + range.first_matrix, static_cast<std::size_t>(range.matrices_count)}));
  if (range.packed_bytes > 0) {
    DRAFTMILL_RETURN_IF_ERROR(
        matrices.packed.Upload({view.packed + range.first_packed, static_cast<std::size_t>(range.packed_bytes)}));
  }
  return matrices;
}

/// Loads one policy; layers are read once, whatever the number of GPUs.
class Loader {
 public:
  explicit Loader(const DeviceWeightsRequest& request) : request_(request), gpus_(request.devices.size()) {}

  Result<LoadedDeviceWeights> Load() {
    const ModelFolder& model = *request_.model;
    const std::int64_t host_bytes = model.description.device_memory.resident_bytes;
    const bool fits_on_host = request_.memory_bytes <= 0 || host_bytes <= request_.memory_bytes;
    const bool in_memory = request_.policy == DeviceWeightPolicy::kStreamed ? request_.from_memory : fits_on_host;
    DRAFTMILL_ASSIGN_OR_RETURN(store_, OpenStore(in_memory));
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      DRAFTMILL_RETURN_IF_ERROR(Use(gpu));
      DRAFTMILL_ASSIGN_OR_RETURN(gpus_[gpu].common.embedding, UploadEmbedding(model.config, *store_));
    }
    for (std::int64_t layer = 0; layer < request_.layers; ++layer) {
      DRAFTMILL_ASSIGN_OR_RETURN(const LayerView<Bf16> view, store_->Acquire(layer));
      const Status status = LoadLayer(view);
      store_->Release(layer);
      DRAFTMILL_RETURN_IF_ERROR(status);
    }
    return Finish();
  }

 private:
  struct Gpu {
    CommonWeights common;
    std::vector<Matrices> matrices;  ///< kResident: all; kSharded: this GPU's parts
  };

  Result<std::shared_ptr<WeightStore<Bf16>>> OpenStore(bool in_memory) const {
    WeightStoreOptions options{in_memory ? WeightPolicy::kResident : WeightPolicy::kStreamed};
    DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WeightStore<Bf16>> store,
                               WeightStore<Bf16>::Open(*request_.model, options));
    return std::shared_ptr<WeightStore<Bf16>>(std::move(store));
  }

  Status Use(std::size_t gpu) const { return Check(cudaSetDevice(request_.devices[gpu]), "cudaSetDevice"); }

  Status LoadLayer(const LayerView<Bf16>& view) {
    const bool sharded = request_.policy == DeviceWeightPolicy::kSharded;
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      DRAFTMILL_RETURN_IF_ERROR(Use(gpu));
      DRAFTMILL_ASSIGN_OR_RETURN(CommonWeights::Vectors vectors, UploadVectors(view));
      gpus_[gpu].common.layers.push_back(std::move(vectors));
      if (request_.policy == DeviceWeightPolicy::kStreamed) continue;
      const auto parts = static_cast<std::int64_t>(gpus_.size());
      DRAFTMILL_ASSIGN_OR_RETURN(Matrices matrices,
                                 UploadPart(view, sharded ? static_cast<std::int64_t>(gpu) : 0, sharded ? parts : 1));
      gpus_[gpu].matrices.push_back(std::move(matrices));
    }
    return OkStatus();
  }

  Result<LoadedDeviceWeights> Finish() {
    LoadedDeviceWeights loaded;
    loaded.digest = store_->digest();
    DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<LayerSource>> sources, MakeSources());
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
      DRAFTMILL_RETURN_IF_ERROR(Use(gpu));
      if (request_.policy == DeviceWeightPolicy::kResident) {
        loaded.by_device.push_back(
            std::make_unique<ResidentWeights>(std::move(gpus_[gpu].common), std::move(gpus_[gpu].matrices)));
        continue;
      }
      DRAFTMILL_ASSIGN_OR_RETURN(auto weights,
                                 MakeFetchedWeights(std::move(gpus_[gpu].common), std::move(sources[gpu])));
      loaded.by_device.push_back(std::move(weights));
    }
    return loaded;
  }

  /// One for each GPU; none for the policy `resident`.
  Result<std::vector<std::unique_ptr<LayerSource>>> MakeSources() {
    std::vector<std::unique_ptr<LayerSource>> sources;
    if (request_.policy == DeviceWeightPolicy::kResident) return sources;
    if (request_.policy == DeviceWeightPolicy::kSharded) {
      std::vector<std::vector<ShardedPart>> parts;
      for (Gpu& gpu : gpus_) {
        parts.emplace_back();
        for (Matrices& matrices : gpu.matrices)
          parts.back().push_back({std::move(matrices.matrices), std::move(matrices.packed)});
      }
      return MakePeerSources(request_.devices, std::move(parts));
    }
    if (request_.from_memory) return MakeHostSources(request_.layers, store_, gpus_.size());
    return MakeDiskSources(request_.layers, store_, gpus_.size());
  }

  const DeviceWeightsRequest& request_;
  std::vector<Gpu> gpus_;
  std::shared_ptr<WeightStore<Bf16>> store_;
};

}  // namespace

DeviceLayer DeviceWeights::Vectors(std::int64_t index) const {
  const CommonWeights::Vectors& vectors = common_.layers[static_cast<std::size_t>(index)];
  DeviceLayer layer;
  layer.layout = &vectors.layout;
  layer.vectors = vectors.values.data();
  layer.biases = vectors.biases.data();
  return layer;
}

Result<LoadedDeviceWeights> LoadDeviceWeights(const DeviceWeightsRequest& request) { return Loader(request).Load(); }

}  // namespace draftmill
