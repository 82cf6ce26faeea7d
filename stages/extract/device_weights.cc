#include "stages/extract/device_weights.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

namespace draftmill {
namespace {

constexpr std::int64_t kEmbeddingPieceBytes = std::int64_t{64} << 20;

Result<cuda::DeviceBuffer<Bf16>> UploadEmbedding(const ModelConfig& config, WeightStore<Bf16>& store) {
  DRAFTMILL_ASSIGN_OR_RETURN(auto embedding, cuda::DeviceBuffer<Bf16>::Make(config.vocab_size * config.hidden_size));
  const std::int64_t piece = std::max<std::int64_t>(1, kEmbeddingPieceBytes / (2 * config.hidden_size));
  std::vector<std::int32_t> ids;
  std::vector<Bf16> rows;
  for (std::int64_t first = 0; first < config.vocab_size; first += piece) {
    const std::int64_t count = std::min(piece, config.vocab_size - first);
    ids.resize(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first));
    rows.resize(static_cast<std::size_t>(count * config.hidden_size));
    DRAFTMILL_RETURN_IF_ERROR(store.EmbeddingRows(ids, rows.data()));
    DRAFTMILL_RETURN_IF_ERROR(
        cuda::Check(cudaMemcpy(embedding.data() + first * config.hidden_size, rows.data(), rows.size() * sizeof(Bf16),
                               cudaMemcpyHostToDevice), "copy of the embedding"));
  }
  return embedding;
}

}  // namespace

Result<DeviceWeights::Layer> DeviceWeights::Upload(const LayerView<Bf16>& view) {
  Layer layer;
  layer.layout = *view.layout;
  const std::span<const float> vectors(view.vectors, static_cast<std::size_t>(view.layout->vectors_total));
  std::vector<Bf16> biases(vectors.size());
  std::transform(vectors.begin(), vectors.end(), biases.begin(), ToBf16);
  DRAFTMILL_ASSIGN_OR_RETURN(layer.vectors, cuda::DeviceBuffer<float>::Make(view.layout->vectors_total));
  DRAFTMILL_ASSIGN_OR_RETURN(layer.biases, cuda::DeviceBuffer<Bf16>::Make(view.layout->vectors_total));
  DRAFTMILL_ASSIGN_OR_RETURN(layer.matrices, cuda::DeviceBuffer<Bf16>::Make(view.layout->matrices_total));
  DRAFTMILL_RETURN_IF_ERROR(layer.vectors.Upload(vectors));
  DRAFTMILL_RETURN_IF_ERROR(layer.biases.Upload(biases));
  DRAFTMILL_RETURN_IF_ERROR(
      layer.matrices.Upload({view.matrices, static_cast<std::size_t>(view.layout->matrices_total)}));
  if (view.layout->packed.bytes == 0) return layer;
  DRAFTMILL_ASSIGN_OR_RETURN(layer.packed, cuda::DeviceBuffer<std::byte>::Make(view.layout->packed.bytes));
  DRAFTMILL_RETURN_IF_ERROR(layer.packed.Upload({view.packed, static_cast<std::size_t>(view.layout->packed.bytes)}));
  return layer;
}

Result<DeviceWeights> DeviceWeights::Load(const ModelConfig& config, WeightStore<Bf16>& store, std::int64_t layers) {
  DeviceWeights weights;
  DRAFTMILL_ASSIGN_OR_RETURN(weights.embedding_, UploadEmbedding(config, store));
  for (std::int64_t i = 0; i < layers; ++i) {
    DRAFTMILL_ASSIGN_OR_RETURN(const LayerView<Bf16> view, store.Acquire(i));
    Result<Layer> layer = Upload(view);
    store.Release(i);
    if (!layer.ok()) return layer.status();
    weights.layers_.push_back(std::move(*layer));
  }
  return weights;
}

DeviceLayer DeviceWeights::layer(std::int64_t index) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  return {&layer.layout, layer.vectors.data(), layer.biases.data(), layer.matrices.data(), layer.packed.data()};
}

}  // namespace draftmill
