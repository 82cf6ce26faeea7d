// Which device a run takes: the GPU engine's plug-in is asked only where it could be used.
#include <algorithm>
#include <string>
#include <vector>

#include "stages/extract/device_engine.h"
#include "stages/extract/extractor.h"

namespace draftmill {
namespace {

/// Bytes free on the GPU that has least of them.
Result<std::int64_t> FreeDeviceBytes(const ModelDescription& model) {
  DRAFTMILL_RETURN_IF_ERROR(model.device_support);
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
  DRAFTMILL_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> devices, engine->Devices());
  std::int64_t least = devices.front().free_bytes;
  for (const DeviceFacts& device : devices) least = std::min(least, device.free_bytes);
  return least;
}

}  // namespace

Status ResolveDevice(const ModelDescription& model, ExtractOptions& options) {
  if (options.device == "cpu") return OkStatus();
  const bool float32 = options.dtype.empty() ? model.published_in_float32 : options.dtype == "float32";
  const Result<std::int64_t> free = float32 ? Unsupported("the engine for GPUs does not compute in float32") : FreeDeviceBytes(model);
  if (!free.ok() && options.device == "cuda") {
    return Unsupported("extract.device is cuda: " + free.status().message() + ". Nothing was started: set it to cpu or auto");
  }
  options.device = free.ok() ? "cuda" : "cpu";
  options.device_bytes = free.ok() ? *free : 0;
  return OkStatus();
}

}  // namespace draftmill
