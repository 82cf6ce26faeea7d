#include "stages/extract/device/device_fault_cuda.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "kernels/cuda_check.h"
#include "kernels/fault_cuda.h"
#include "stages/extract/device/device_fault.h"

namespace draftmill {
namespace {

std::optional<PlannedDeviceFault> AskedFor() {
  const char* const text = std::getenv("DRAFTMILL_DEVICE_FAULT");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  return text == nullptr ? std::nullopt : ParseDeviceFault(text);
}

}  // namespace

Status InjectedDeviceFault(int device) {
  static const std::optional<PlannedDeviceFault> fault = AskedFor();
  static std::atomic<std::int64_t> blocks{0};
  if (!fault || fault->device != device || ++blocks != fault->block) return OkStatus();
  switch (fault->kind) {
    case DeviceFaultKind::kIllegalAccess:
      DRAFTMILL_RETURN_IF_ERROR(cuda::WriteIllegally(nullptr));
      return cuda::Check(cudaDeviceSynchronize(), "injected");
    case DeviceFaultKind::kMemoryError: return cuda::Check(cudaErrorECCUncorrectable, "injected");
    case DeviceFaultKind::kLost: return cuda::Check(cudaErrorDevicesUnavailable, "injected");
    case DeviceFaultKind::kOutOfMemory: return OutOfMemory("injected: no room on the GPU; lower extract.batch_tokens");
  }
  return OkStatus();
}

void ReleaseCachedDeviceMemory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

}  // namespace draftmill
