#include "stages/extract/device/device_engine.h"

#include <dlfcn.h>

#include "stages/extract/plugin.h"

namespace draftmill {
namespace {

constexpr const char* kPluginName = "libdraftmill_cuda.so";

Result<const DeviceEngine*> Load() {
  // Without a driver there is no use in loading gigabytes of libraries.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return Unsupported("this machine has no NVIDIA driver (" + LoaderMessage() + ")");
  }
  Result<const DeviceEngine*> engine = LoadPlugin<DeviceEngine>(kPluginName, kDeviceEngineSymbol);
  if (!engine.ok()) return Unsupported("the engine for GPUs: " + engine.status().message());
  return engine;
}

}  // namespace

Result<const DeviceEngine*> LoadDeviceEngine() {
  static const Result<const DeviceEngine*> engine = Load();
  return engine;
}

}  // namespace draftmill
