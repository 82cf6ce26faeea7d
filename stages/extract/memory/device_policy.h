// Where a model's weights live when GPUs run it, and how large batches and blocks are: a pure function of the model,
// the options and what is free. No CUDA here.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DevicePlan plan, PlanDevices(model, options));
//   plan.weights, plan.sizes, plan.reason
//
// Sizes are resolved once, at the first start, and stored; given in the options they are kept and only held against
// what is free. Where the weights live is decided anew at each start and changes no byte of the states.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "stages/extract/extractor.h"
#include "stages/extract/memory/auto_sizes.h"

namespace draftmill {

enum class DeviceWeightPolicy : std::uint8_t {
  kResident,  ///< all layers on each GPU
  kSharded,   ///< each GPU keeps a part of each layer; a layer is gathered before its turn, behind the computing
  kStreamed,  ///< layers come from the host before their turn, behind the computing
};

struct DevicePlan {
  DeviceWeightPolicy weights = DeviceWeightPolicy::kResident;
  bool from_memory = true;  ///< kStreamed: layers wait in pinned host memory, else they are read from disk each time
  ExtractSizes sizes;
  std::int64_t device_bytes = 0;       ///< forecast for each GPU
  std::int64_t host_bytes = 0;         ///< forecast of pinned host memory, all GPUs together
  std::int64_t host_weight_bytes = 0;  ///< of them for weights
  int blocks_in_flight = 2;            ///< on each GPU; 1 where the host has no room for more
  std::string reason;                  ///< one line: what was decided and why
};

/// kOutOfMemory with the forecast, what is free, and the parameter to change.
Result<DevicePlan> PlanDevices(const ModelDescription& model, const ExtractOptions& options);

}  // namespace draftmill
