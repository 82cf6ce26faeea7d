// CUDA's return codes as Status. For files that are compiled against the toolkit's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/status.h"

namespace draftmill::cuda {

/// OK, or kDevice (kOutOfMemory where memory ran out) with the call's name and CUDA's words.
inline Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return OkStatus();
  const std::string message = std::string(what) + ": " + cudaGetErrorString(error);
  return error == cudaErrorMemoryAllocation ? OutOfMemory(message) : DeviceError(message);
}

/// The outcome of the kernel launch just made on this thread.
inline Status CheckLaunch(const char* kernel) { return Check(cudaGetLastError(), kernel); }

}  // namespace draftmill::cuda
