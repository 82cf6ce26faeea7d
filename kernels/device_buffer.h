// Memory of a GPU and pinned host memory, owned. For files that are compiled against the toolkit's headers.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(auto ids, cuda::DeviceBuffer<std::int32_t>::Make(count));
//   DRAFTMILL_RETURN_IF_ERROR(ids.Upload(host_ids));           // waits until the bytes are there
//
// A buffer belongs to the device that was current when it was made. Movable; the owner's rules for threads hold.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/cuda_check.h"

namespace draftmill::cuda {

template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;

  /// Uninitialised room for `count` elements; kOutOfMemory says how many bytes were asked for.
  static Result<DeviceBuffer> Make(std::int64_t count) {
    void* memory = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
      cudaGetLastError();  // an allocation that failed is no fault of the device: later launches must not report it
      return Check(error, "cudaMalloc").WithContext(std::to_string(bytes) + " bytes on the GPU");
    }
    DeviceBuffer buffer;
    buffer.memory_.reset(static_cast<T*>(memory));
    buffer.count_ = count;
    return buffer;
  }

  /// Makes room for `count` elements where there is less; the content is lost then.
  Status Grow(std::int64_t count) {
    if (count <= count_) return OkStatus();
    *this = DeviceBuffer();
    DRAFTMILL_ASSIGN_OR_RETURN(*this, Make(count));
    return OkStatus();
  }

  Status Upload(std::span<const T> values) {
    return Check(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "copy to the GPU");
  }
  Result<std::vector<T>> Download() const {
    std::vector<T> values(static_cast<std::size_t>(count_));
    DRAFTMILL_RETURN_IF_ERROR(Check(
        cudaMemcpy(values.data(), data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy from the GPU"));
    return values;
  }

  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  std::int64_t count() const { return count_; }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  std::int64_t count_ = 0;
};

/// Host memory that a GPU copies to and from by itself.
template <typename T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;

  static Result<PinnedBuffer> Make(std::int64_t count) {
    void* memory = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return OutOfMemory(std::to_string(bytes) + " bytes of pinned host memory: " + cudaGetErrorString(error));
    }
    PinnedBuffer buffer;
    buffer.memory_.reset(static_cast<T*>(memory));
    buffer.count_ = count;
    return buffer;
  }

  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  std::int64_t count() const { return count_; }

 private:
  struct Free {
    void operator()(T* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  std::int64_t count_ = 0;
};

/// The number of GPUs that this process may use; 0 where there is no driver.
inline int DeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

}  // namespace draftmill::cuda
