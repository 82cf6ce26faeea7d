// Weights whose layers are brought to a GPU when their turn comes, into one of two buffers, while the layer before
// computes.
#pragma once

#include <memory>

#include "base/status.h"
#include "stages/extract/device/device_weights.h"
#include "stages/extract/device/layer_source.h"

namespace draftmill {

/// On the GPU that is current. kOutOfMemory where it has no room for two layers.
Result<std::unique_ptr<DeviceWeights>> MakeFetchedWeights(CommonWeights common, std::unique_ptr<LayerSource> source);

}  // namespace draftmill
