#include "stages/extract/device/device_products.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <cuda_runtime_api.h>

#include <utility>

namespace draftmill {
namespace {

at::TensorOptions OnThisDevice(at::ScalarType type) {
  int device = 0;
  cudaGetDevice(&device);
  return at::TensorOptions().dtype(type).device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
}

at::Tensor View(const Bf16* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<Bf16*>(data), {rows, cols},
                       OnThisDevice(at::kBFloat16));  // NOLINT: only results are written
}

}  // namespace

void DeviceLinear(const DeviceLinearArgs& args) {
  at::Tensor out = View(args.out, args.rows, args.outputs);
  const at::Tensor a = View(args.a, args.rows, args.inputs);
  const at::Tensor weight = View(args.weight, args.outputs, args.inputs).t();
  if (args.bias == nullptr) {
    at::mm_out(out, a, weight);
  } else {
    // A bias of one dimension is added by the product itself, before its one rounding.
    at::addmm_out(out, View(args.bias, 1, args.outputs).view({args.outputs}), a, weight);
  }
}

void DeviceLinearToFloat(const DeviceLinearToFloatArgs& args) {
  at::Tensor out = at::from_blob(args.out, {args.rows, args.outputs}, OnThisDevice(at::kFloat));
  at::mm_out(out, View(args.a, args.rows, args.inputs), View(args.weight, args.outputs, args.inputs).t(), at::kFloat);
}

DeviceRows DeviceGroupedLinear(const DeviceGroupedLinearArgs& args) {
  // Of the last matrix nothing follows it, so the view ends with it.
  const at::Tensor weights =
      at::from_blob(const_cast<Bf16*>(args.weight), {args.groups, args.inputs, args.outputs},  // NOLINT: only read
                    {args.weight_distance, 1, args.inputs}, OnThisDevice(at::kBFloat16));
  const at::Tensor ends = at::from_blob(const_cast<std::int32_t*>(args.row_ends), {args.groups},  // NOLINT: only read
                                        OnThisDevice(at::kInt));
  auto result = std::make_shared<at::Tensor>(at::_grouped_mm(View(args.a, args.rows, args.inputs), weights, ends));
  const auto* const data = static_cast<const Bf16*>(result->const_data_ptr());
  return {std::move(result), data};
}

bool CanGroupProducts() {
  int device = 0;
  int major = 0;
  cudaGetDevice(&device);
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return false;
  return major == 9 || major == 10;
}

void KeepFloatSums() { at::globalContext().setAllowBF16ReductionCuBLAS(false); }

}  // namespace draftmill
