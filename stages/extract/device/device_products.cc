#include "stages/extract/device/device_products.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <cuda_runtime_api.h>

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

void KeepFloatSums() { at::globalContext().setAllowBF16ReductionCuBLAS(false); }

}  // namespace draftmill
