#include "stages/extract/device/gpu_reader.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr const char* kNvmlName = "libnvidia-ml.so.1";
constexpr std::size_t kLongestCommand = 80;

// NVML's binary interface, as far as it is used; it is stable (functions carry a version in their names).
using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;

struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
struct NvmlProcess {
  unsigned int pid = 0;
  unsigned long long used_memory = 0;
  unsigned int gpu_instance = 0;
  unsigned int compute_instance = 0;
};

struct NvmlFunctions {
  int (*init)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*handle_by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*minor_number)(NvmlDevice, unsigned int*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
};

template <typename Function>
Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr ? OkStatus() : Unsupported(std::string(kNvmlName) + " has no " + name);
}

/// What a process was started as: its command line, cut, or its name.
std::string CommandOf(std::int64_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  for (const char* file : {"/cmdline", "/comm"}) {
    Result<std::string> text = RealFileSystem().ReadAll(folder + file, std::int64_t{1} << 20);
    if (!text.ok()) continue;
    std::replace_if(
        text->begin(), text->end(), [](unsigned char c) { return c < ' '; }, ' ');
    while (!text->empty() && text->back() == ' ') text->pop_back();
    if (text->size() > kLongestCommand) *text = text->substr(0, kLongestCommand) + "...";
    if (!text->empty()) return *std::move(text);
  }
  return "";
}

class Nvml : public GpuReader {
 public:
  static Result<std::unique_ptr<Nvml>> Load() {
    void* const library = dlopen(kNvmlName, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Unsupported(std::string("this machine has no ") + kNvmlName);
    NvmlFunctions nvml;
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlInit_v2", nvml.init));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlErrorString", nvml.error_string));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_by_bus_id));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlDeviceGetName", nvml.name));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlDeviceGetMinorNumber", nvml.minor_number));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlDeviceGetMemoryInfo", nvml.memory));
    DRAFTMILL_RETURN_IF_ERROR(Find(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes));
    auto reader = std::make_unique<Nvml>(nvml);
    DRAFTMILL_RETURN_IF_ERROR(reader->Check(nvml.init(), "nvmlInit"));
    return reader;
  }

  explicit Nvml(const NvmlFunctions& functions) : nvml_(functions) {}

  Result<GpuReading> Read(const std::string& bus_id) override {
    const std::lock_guard lock(mutex_);
    NvmlDevice device = nullptr;
    DRAFTMILL_RETURN_IF_ERROR(Check(nvml_.handle_by_bus_id(bus_id.c_str(), &device), "GPU " + bus_id));
    GpuReading gpu;
    std::array<char, 96> name{};
    DRAFTMILL_RETURN_IF_ERROR(Check(nvml_.name(device, name.data(), name.size()), "its name"));
    gpu.name = name.data();
    unsigned int minor = 0;
    if (nvml_.minor_number(device, &minor) == kNvmlSuccess) gpu.minor = static_cast<int>(minor);
    NvmlMemory memory;
    DRAFTMILL_RETURN_IF_ERROR(Check(nvml_.memory(device, &memory), "its memory"));
    gpu.free_bytes = static_cast<std::int64_t>(memory.free);
    gpu.total_bytes = static_cast<std::int64_t>(memory.total);
    DRAFTMILL_ASSIGN_OR_RETURN(gpu.processes, Processes(device));
    return gpu;
  }

 private:
  Status Check(int result, const std::string& what) const {
    if (result == kNvmlSuccess) return OkStatus();
    return DeviceError("NVML: " + what + ": " + nvml_.error_string(result));
  }

  Result<std::vector<GpuProcess>> Processes(NvmlDevice device) const {
    // Others may come between two calls; the second asks for room for some more.
    std::vector<NvmlProcess> infos(64);
    unsigned int count = 0;
    int result = kNvmlInsufficientSize;
    for (int tries = 0; tries < 4 && result == kNvmlInsufficientSize; ++tries) {
      count = static_cast<unsigned int>(infos.size());
      result = nvml_.processes(device, &count, infos.data());
      if (result == kNvmlInsufficientSize) infos.resize(count + 64);
    }
    DRAFTMILL_RETURN_IF_ERROR(Check(result, "the processes on it"));
    std::vector<GpuProcess> processes;
    for (unsigned int i = 0; i < count; ++i) {
      const bool has_bytes = infos[i].used_memory != ~0ULL;
      processes.push_back({static_cast<std::int64_t>(infos[i].pid),
                           has_bytes ? static_cast<std::int64_t>(infos[i].used_memory) : -1, CommandOf(infos[i].pid)});
    }
    return processes;
  }

  const NvmlFunctions nvml_;
  std::mutex mutex_;
};

}  // namespace

Result<GpuReader*> LoadNvml() {
  static const Result<std::unique_ptr<Nvml>>& nvml =
      *std::make_unique<Result<std::unique_ptr<Nvml>>>(Nvml::Load()).release();
  if (!nvml.ok()) return nvml.status();
  return static_cast<GpuReader*>(nvml->get());
}

}  // namespace draftmill
