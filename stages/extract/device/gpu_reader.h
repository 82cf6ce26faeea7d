// What runs on a GPU and how much of its memory is free, asked without taking a part of it: through NVML, the library
// behind nvidia-smi. It is loaded when it is needed, so nothing links it.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(GpuReader* gpus, LoadNvml());
//   DRAFTMILL_ASSIGN_OR_RETURN(GpuReading gpu, gpus->Read("00000000:19:00.0"));
//
// A GPU is named by its PCI bus id, since its number depends on CUDA_VISIBLE_DEVICES. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace draftmill {

/// A process that computes on a GPU.
struct GpuProcess {
  std::int64_t pid = 0;
  std::int64_t bytes = -1;  ///< of the GPU's memory; -1 where the driver does not say
  std::string command;      ///< empty where this system does not show the process
};

struct GpuReading {
  std::string name;  ///< "NVIDIA H200"
  int minor = -1;    ///< of /dev/nvidiaN; -1 where the driver does not say
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
  std::vector<GpuProcess> processes;  ///< this process included
};

class GpuReader {
 public:
  virtual ~GpuReader() = default;
  virtual Result<GpuReading> Read(const std::string& bus_id) = 0;
};

/// The system's NVML, once for the process and never destroyed. kUnsupported with the reason where there is none.
Result<GpuReader*> LoadNvml();

}  // namespace draftmill
