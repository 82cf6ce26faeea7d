// The engine for GPUs as the rest of the program sees it: a plug-in that is loaded when a GPU is wanted, because the
// libraries behind it take seconds to load and are not on every machine.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const DeviceEngine* engine, LoadDeviceEngine());
//   DRAFTMILL_ASSIGN_OR_RETURN(std::vector<DeviceFacts> devices, engine->Devices());
//
// It is libdraftmill_cuda.so (stages/extract/plugin.h). Safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/model_folder.h"

namespace draftmill {

/// One GPU that this process may use.
struct DeviceFacts {
  int index = 0;       ///< as the CUDA runtime numbers it
  std::string name;    ///< "NVIDIA H200"
  std::string bus_id;  ///< "00000000:19:00.0"
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
};

/// What a GPU can do, as its engine's libraries reach it.
struct DeviceRates {
  double product_flops = 0;  ///< per second: bfloat16 products of 8,192^3, back to back
  double to_host_bytes = 0;  ///< per second, into pinned memory
};

class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;
  /// The GPUs there are, at least one, without taking memory of any where the driver tells what is free; kUnsupported with the reason where there is none.
  virtual Result<std::vector<DeviceFacts>> Devices() const = 0;
  /// Measures the first GPU: products for so many seconds, of which the first quarter is not counted, because a cool card
  /// is faster than one at its limit of power.
  virtual Result<DeviceRates> MeasureRates(double seconds) const = 0;
  /// Loads the weights onto every GPU, or prepares to bring them. Decides where they live (stages/extract/memory/device_policy.h) and tells
  /// options.say why.
  virtual Result<std::unique_ptr<Extractor>> MakeExtractor(const ExtractOptions& options, ModelFolder model) const = 0;
};

/// Loads the plug-in, once. kUnsupported says why there is none: not built, no driver, a library that is missing.
Result<const DeviceEngine*> LoadDeviceEngine();

/// The plug-in's only symbol: `const DeviceEngine* draftmill_device_engine(const char* version)`, null for another version.
inline constexpr const char* kDeviceEngineSymbol = "draftmill_device_engine";

}  // namespace draftmill
