// A kernel that writes where it may not: what a test of a run's end after a fault of the GPU needs.
#pragma once

#include "base/status.h"

using cudaStream_t = struct CUstream_st*;

namespace draftmill::cuda {

/// Queues it. From then on everything that this process does with the GPU fails.
Status WriteIllegally(cudaStream_t stream);

}  // namespace draftmill::cuda
