#include "stages/extract/device/fetched_weights.h"

#include <algorithm>
#include <array>
#include <utility>

#include "stages/extract/device/device_handles.h"

namespace draftmill {
namespace {

using cuda::Check;
using cuda::DeviceBuffer;

/// A buffer for one layer.
struct Place {
  DeviceBuffer<Bf16> matrices;
  DeviceBuffer<std::byte> packed;
  Event arrived;  ///< the layer is here
  Event used;     ///< nothing that was queued reads it any more
  std::int64_t layer = -1;
};

class FetchedWeights : public DeviceWeights {
 public:
  FetchedWeights(CommonWeights common, std::unique_ptr<LayerSource> source)
      : DeviceWeights(std::move(common)), source_(std::move(source)) {}
  ~FetchedWeights() override {
    // A copy that is under way must not find its buffers gone.
    if (stream_) cudaStreamSynchronize(stream_.get());
  }

  Status Prepare() {
    std::int64_t matrices = 0;
    std::int64_t packed = 0;
    for (std::int64_t i = 0; i < layers(); ++i) {
      matrices = std::max(matrices, Layout(i).matrices_total);
      packed = std::max(packed, Layout(i).packed.bytes);
    }
    DRAFTMILL_ASSIGN_OR_RETURN(stream_, MakeStream());
    for (Place& place : places_) {
      DRAFTMILL_ASSIGN_OR_RETURN(place.matrices, DeviceBuffer<Bf16>::Make(matrices));
      DRAFTMILL_ASSIGN_OR_RETURN(place.packed, DeviceBuffer<std::byte>::Make(packed));
      DRAFTMILL_ASSIGN_OR_RETURN(place.arrived, MakeEvent());
      DRAFTMILL_ASSIGN_OR_RETURN(place.used, MakeEvent());
    }
    return OkStatus();
  }

  Result<DeviceLayer> Acquire(std::int64_t index, cudaStream_t stream) override {
    DRAFTMILL_RETURN_IF_ERROR(Fetch(index));
    // The next layer's copy then runs beside all of this one. Experts wait for the GPU in the middle of a layer, so after
    // Release a third of the time would be gone.
    if (source_->is_always_there() && index + 1 < layers()) DRAFTMILL_RETURN_IF_ERROR(Fetch(index + 1));
    const Place& place = PlaceOf(index);
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaStreamWaitEvent(stream, place.arrived.get(), 0), "cudaStreamWaitEvent"));
    DeviceLayer layer = Vectors(index);
    layer.matrices = place.matrices.data();
    layer.packed = place.packed.data();
    return layer;
  }

  Status Release(std::int64_t index, cudaStream_t stream) override {
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventRecord(PlaceOf(index).used.get(), stream), "cudaEventRecord"));
    // A source may keep the host waiting; what was queued keeps the GPU busy meanwhile.
    if (index + 1 < layers()) return Fetch(index + 1);
    DRAFTMILL_RETURN_IF_ERROR(source_->EndPass());
    if (source_->is_always_there()) return Fetch(0);
    // The next pass takes every layer anew, as all GPUs do that are on it.
    for (Place& place : places_) place.layer = -1;
    return OkStatus();
  }

  void Abandon() override {
    cudaStreamSynchronize(stream_.get());
    static_cast<void>(source_->EndPass());  // its failure is that of the work that was given up
    for (Place& place : places_) place.layer = -1;
  }

 private:
  /// Neighbours have different places; so have the last layer and the first, where their number is even. Where it is
  /// odd the first one waits for the last.
  Place& PlaceOf(std::int64_t index) { return places_[static_cast<std::size_t>(index) % places_.size()]; }

  Status Fetch(std::int64_t index) {
    Place& place = PlaceOf(index);
    if (place.layer == index) return OkStatus();
    place.layer = -1;  // until it is queued as a whole
    // An event that was never recorded holds nobody up.
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaStreamWaitEvent(stream_.get(), place.used.get(), 0), "cudaStreamWaitEvent"));
    DRAFTMILL_RETURN_IF_ERROR(
        source_->Queue(index, Layout(index), place.matrices.data(), place.packed.data(), stream_.get()));
    DRAFTMILL_RETURN_IF_ERROR(Check(cudaEventRecord(place.arrived.get(), stream_.get()), "cudaEventRecord"));
    place.layer = index;
    return OkStatus();
  }

  const std::unique_ptr<LayerSource> source_;
  Stream stream_;
  std::array<Place, 2> places_;
};

}  // namespace

Result<std::unique_ptr<DeviceWeights>> MakeFetchedWeights(CommonWeights common, std::unique_ptr<LayerSource> source) {
  auto weights = std::make_unique<FetchedWeights>(std::move(common), std::move(source));
  DRAFTMILL_RETURN_IF_ERROR(weights->Prepare());
  return std::unique_ptr<DeviceWeights>(std::move(weights));
}

}  // namespace draftmill
