#include "stages/extract/device/device_rates.h"

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>

#include "kernels/device_buffer.h"

namespace draftmill {
namespace {

constexpr std::int64_t kEdge = 8192;
constexpr int kProductsAtATime = 50;
constexpr std::int64_t kCopyBytes = std::int64_t{1} << 30;
constexpr int kCopies = 8;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<double> ProductFlops(double seconds) {
  const c10::InferenceMode inference;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const at::Tensor a = at::randn({kEdge, kEdge}, options);
  const at::Tensor b = at::randn({kEdge, kEdge}, options);
  at::Tensor out = at::empty({kEdge, kEdge}, options);
  const double begin = Now();
  double counted_from = 0;
  std::int64_t products = 0;
  while (Now() - begin < seconds) {
    if (counted_from == 0 && Now() - begin >= seconds / 4) counted_from = Now();
    for (int i = 0; i < kProductsAtATime; ++i) at::mm_out(out, a, b);
    DRAFTMILL_RETURN_IF_ERROR(cuda::Check(cudaDeviceSynchronize(), "products"));
    if (counted_from > 0) products += kProductsAtATime;
  }
  return products == 0 ? 0.0 : 2.0 * kEdge * kEdge * kEdge * static_cast<double>(products) / (Now() - counted_from);
}

Result<double> ToHostBytes() {
  DRAFTMILL_ASSIGN_OR_RETURN(auto device, cuda::DeviceBuffer<std::byte>::Make(kCopyBytes));
  DRAFTMILL_ASSIGN_OR_RETURN(auto host, cuda::PinnedBuffer<std::byte>::Make(kCopyBytes));
  const auto copy = [&] {
    return cuda::Check(
        cudaMemcpy(host.data(), device.data(), static_cast<std::size_t>(kCopyBytes), cudaMemcpyDeviceToHost), "copy");
  };
  DRAFTMILL_RETURN_IF_ERROR(copy());
  const double begin = Now();
  for (int i = 0; i < kCopies; ++i) DRAFTMILL_RETURN_IF_ERROR(copy());
  return static_cast<double>(kCopies * kCopyBytes) / (Now() - begin);
}

}  // namespace

Result<DeviceRates> MeasureDeviceRates(double seconds) {
  DeviceRates rates;
  DRAFTMILL_ASSIGN_OR_RETURN(rates.product_flops, ProductFlops(seconds));
  DRAFTMILL_ASSIGN_OR_RETURN(rates.to_host_bytes, ToHostBytes());
  return rates;
}

}  // namespace draftmill
