// Which device a run takes: the GPU engine's plug-in is asked only where it could be used.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/device_claim.h"
#include "stages/extract/device_engine.h"
#include "stages/extract/extractor.h"
#include "stages/extract/gpu_reader.h"

namespace draftmill {
namespace {

Result<std::vector<DeviceFacts>> Devices(const ModelDescription& model) {
  DRAFTMILL_RETURN_IF_ERROR(model.device_support);
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
  return engine->Devices();
}

std::int64_t LeastFree(const std::vector<DeviceFacts>& devices) {
  std::int64_t least = devices.front().free_bytes;
  for (const DeviceFacts& device : devices) least = std::min(least, device.free_bytes);
  return least;
}

}  // namespace

Status ResolveDevice(const ModelDescription& model, ExtractOptions& options) {
  if (options.device == "cpu") return OkStatus();
  const bool float32 = options.dtype.empty() ? model.published_in_float32 : options.dtype == "float32";
  const Result<std::vector<DeviceFacts>> devices =
      float32 ? Unsupported("the engine for GPUs does not compute in float32") : Devices(model);
  if (!devices.ok() && options.device == "cuda") {
    return Unsupported("extract.device is cuda: " + devices.status().message() +
                       ". Nothing was started: set it to cpu or auto");
  }
  options.device = devices.ok() ? "cuda" : "cpu";
  options.device_count = devices.ok() ? static_cast<int>(devices->size()) : 0;
  options.device_bytes = devices.ok() ? LeastFree(*devices) : 0;
  return OkStatus();
}

Status ClaimDevices(ExtractOptions& options) {
  if (options.device != "cuda" || options.device_claim) return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
  Result<GpuReader*> gpus = LoadNvml();
  if (!gpus.ok()) {
    // Their free memory is held against the forecast all the same.
    if (options.say) options.say("whoever else computes on the GPUs cannot be named: " + gpus.status().message());
    return OkStatus();
  }
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<DeviceFacts> devices, engine->Devices());
  ClaimRequest request;
  request.when_occupied = options.occupied == "wait" ? WhenOccupied::kWait : WhenOccupied::kFail;
  request.say = options.say;
  request.should_stop = options.should_stop;
  for (const DeviceFacts& device : devices) request.bus_ids.push_back(device.bus_id);
  DRAFTMILL_ASSIGN_OR_RETURN(DeviceClaim claim, ClaimDevices(request, **gpus));
  options.device_claim = std::make_shared<DeviceClaim>(std::move(claim));
  DRAFTMILL_ASSIGN_OR_RETURN(devices, engine->Devices());
  options.device_bytes = LeastFree(devices);
  return OkStatus();
}

}  // namespace draftmill
