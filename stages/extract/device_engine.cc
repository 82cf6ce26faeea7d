#include "stages/extract/device_engine.h"

#include <dlfcn.h>

namespace draftmill {
namespace {

constexpr const char* kPluginName = "libdraftmill_cuda.so";

std::string LoaderMessage() {
  const char* message = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
  return message == nullptr ? "unknown reason" : message;
}

Result<const DeviceEngine*> Load() {
  // Without a driver there is no use in loading gigabytes of libraries.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return Unsupported("this machine has no NVIDIA driver (" + LoaderMessage() + ")");
  }
  void* const plugin = dlopen(kPluginName, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return Unsupported("the engine for GPUs cannot be loaded: " + LoaderMessage());
  using EntryPoint = const DeviceEngine* (*)(const char*);
  const auto entry = reinterpret_cast<EntryPoint>(dlsym(plugin, kDeviceEngineSymbol));
  const DeviceEngine* const engine = entry == nullptr ? nullptr : entry(DRAFTMILL_VERSION);
  if (engine == nullptr) return Unsupported(std::string(kPluginName) + " belongs to another version of draftmill");
  return engine;
}

}  // namespace

Result<const DeviceEngine*> LoadDeviceEngine() {
  static const Result<const DeviceEngine*> engine = Load();
  return engine;
}

}  // namespace draftmill
