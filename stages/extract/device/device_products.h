// Products of matrices on a GPU through ATen; no torch types in this header.
//
// Queued on ATen's current stream of the current GPU, into memory that the caller made. Row-major operands; the same
// shapes give the same bits on the same kind of GPU. May throw what torch throws.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace draftmill {

/// A linear layer: out [rows, outputs] = a [rows, inputs] * weight [outputs, inputs]^T (+ bias [outputs], may be null).
/// Sums are float32 and rounded once.
struct DeviceLinearArgs {
  const Bf16* a = nullptr;
  const Bf16* weight = nullptr;
  const Bf16* bias = nullptr;
  Bf16* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
void DeviceLinear(const DeviceLinearArgs& args);

/// The same with float32 results that are not rounded, without bias.
struct DeviceLinearToFloatArgs {
  const Bf16* a = nullptr;
  const Bf16* weight = nullptr;
  float* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
void DeviceLinearToFloat(const DeviceLinearToFloatArgs& args);

/// Makes products keep float32 sums to the end, as the published models have it. Once in a process is enough.
void KeepFloatSums();

}  // namespace draftmill
