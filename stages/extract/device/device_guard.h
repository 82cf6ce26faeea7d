// Exceptions of torch and the allocator as Status, at the edges of the engine for GPUs.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <new>
#include <string>

#include "base/status.h"

namespace draftmill {

/// Calls `body`, which returns a Status or a Result, and turns what it throws into a failure.
template <typename Body>
auto Guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return OutOfMemory(std::string("on the GPU: ") + error.what_without_backtrace() + "; lower extract.batch_tokens");
  } catch (const c10::Error& error) {
    const std::string message = std::string("on the GPU: ") + error.what_without_backtrace();
    return cudaPeekAtLastError() == cudaSuccess ? Internal(message) : DeviceError(message);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the operating system gave no more memory; lower extract.batch_tokens, or free memory");
  } catch (const std::exception& error) {
    return Internal(std::string("the engine for GPUs failed: ") + error.what());
  }
}

}  // namespace draftmill
