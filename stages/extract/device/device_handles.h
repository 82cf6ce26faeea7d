// CUDA's streams and events, owned. For files that are compiled against the toolkit's headers.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(const Stream stream, MakeStream());     // of the GPU that is current
//
// Movable; safe from the thread that owns them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "base/status.h"
#include "kernels/cuda_check.h"

namespace draftmill {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<CUstream_st, DestroyStream>;
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

/// A stream that waits for no other.
inline Result<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  return Stream(stream);
}

/// An event that a host thread waits for without keeping a core busy.
inline Result<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  DRAFTMILL_RETURN_IF_ERROR(
      cuda::Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreate"));
  return Event(event);
}

/// What is queued on `waiting` from now on begins after what is queued on `queued` by now.
inline Status WaitFor(cudaStream_t waiting, cudaStream_t queued, const Event& event) {
  DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaEventRecord(event.get(), queued), "cudaEventRecord"));
  return cuda::Check(cudaStreamWaitEvent(waiting, event.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace draftmill
