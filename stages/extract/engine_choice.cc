// Which engine a run takes: the plug-in of the one for GPUs is asked only where it could be used.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/cpu/cpu_extractor.h"
#include "stages/extract/cpu/products.h"
#include "stages/extract/device/device_claim.h"
#include "stages/extract/device/device_engine.h"
#include "stages/extract/device/gpu_reader.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/model_folder.h"

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

Status CheckOptions(const ExtractOptions& options) {
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda") {
    return InvalidConfig("extract.device must be auto, cpu or cuda, not " + options.device);
  }
  if (options.weights != "auto" && options.weights != "resident" && options.weights != "sharded" &&
      options.weights != "streamed") {
    return InvalidConfig("extract.weights must be auto, resident, sharded or streamed, not " + options.weights);
  }
  if (options.numerics != "hf" && options.numerics != "fused") {
    return InvalidConfig("extract.numerics must be hf or fused, not " + options.numerics);
  }
  if (!options.dtype.empty() && options.dtype != "bfloat16" && options.dtype != "float32") {
    return InvalidConfig("the dtype of states must be bfloat16 or float32, not " + options.dtype);
  }
  if (options.threads < 1) return Internal("the engine needs at least one thread");
  return OkStatus();
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

Status LoadEngineLibraries(const ExtractOptions& options) {
  // A GPU's states are read on the CPU too, for the self-check.
  if (const Status products = LoadProducts(); !products.ok()) {
    return Unsupported(products.message() +
                       ". Nothing was started. Set up and build again (tools/setup.sh), or make all but the states: "
                       "draftmill run TARGET --until vocab_map");
  }
  return options.device == "cuda" ? LoadDeviceEngine().status() : OkStatus();
}

Result<std::unique_ptr<Extractor>> Extractor::Create(const ExtractOptions& options) {
  DRAFTMILL_RETURN_IF_ERROR(CheckOptions(options));
  DRAFTMILL_ASSIGN_OR_RETURN(ModelFolder model, OpenModelFolder(options.model_folder, options.layers));
  ExtractOptions resolved = options;
  DRAFTMILL_RETURN_IF_ERROR(ResolveDevice(model.description, resolved));
  if (resolved.device != "cuda") {
    if (options.weights == "sharded")
      return Unsupported(
          "extract.weights sharded shares weights out over GPUs; on the CPU use auto, resident or streamed");
    return MakeCpuExtractor(std::move(model), options);
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
  return engine->MakeExtractor(resolved, std::move(model));
}

bool ExtractorIsBuilt() { return true; }

}  // namespace draftmill
