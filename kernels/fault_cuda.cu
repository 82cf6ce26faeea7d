#include "kernels/cuda_check.h"
#include "kernels/fault_cuda.h"

namespace draftmill::cuda {
namespace {

__global__ void WriteTo(int* nowhere) { *nowhere = 1; }

}  // namespace

Status WriteIllegally(cudaStream_t stream) {
  WriteTo<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(64));
  return Check(cudaGetLastError(), "the kernel that writes illegally");
}

}  // namespace draftmill::cuda
