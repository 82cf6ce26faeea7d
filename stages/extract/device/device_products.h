// Products of matrices on a GPU through ATen; no torch types in this header.
//
// Queued on ATen's current stream of the current GPU, into memory that the caller made. Row-major operands; the same
// shapes give the same bits on the same kind of GPU. May throw what torch throws.
#pragma once

#include <cstdint>
#include <memory>

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

/// Rows in memory of ATen's cache. It goes back with `owner`: to what is queued on the same stream afterwards.
struct DeviceRows {
  std::shared_ptr<const void> owner;
  const Bf16* data = nullptr;
};

/// Linear layers of neighbouring experts at once, each over its own rows: row r of the result [rows, outputs] is that of
/// `a` times the matrix of the group in which it lies. Without biases. `inputs` and `outputs` are multiples of eight.
/// For GPUs of compute capability 9 and 10 (CanGroupProducts).
struct DeviceGroupedLinearArgs {
  const Bf16* a = nullptr;                 ///< [rows, inputs], sorted by group
  const Bf16* weight = nullptr;            ///< each [outputs, inputs]
  std::int64_t weight_distance = 0;        ///< elements from one group's to the next
  const std::int32_t* row_ends = nullptr;  ///< [groups], on the GPU: where each one's rows end; the last is `rows`
  std::int64_t groups = 0;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
DeviceRows DeviceGroupedLinear(const DeviceGroupedLinearArgs& args);

/// Whether the current GPU has the kernels for that. Elsewhere ATen would wait for the GPU to read the groups' rows.
bool CanGroupProducts();

/// Makes products keep float32 sums to the end, as the published models have it. Once in a process is enough.
void KeepFloatSums();

}  // namespace draftmill
