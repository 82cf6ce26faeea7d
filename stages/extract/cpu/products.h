// Products of matrices on the CPU through ATen, which a plug-in brings (stages/extract/cpu/product_library.h); no torch types in this header.
//
// Call PrepareProductThread() first on every thread that multiplies: ATen's own pool must stay out of the way, since the
// engine's parallelism is tasks. All functions may throw what torch throws, and std::runtime_error where LoadProducts()
// would have failed; the engine's boundary functions catch it.
// Row-major operands; the same shapes and alignments give the same bits on the same machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/bfloat16.h"

namespace draftmill {

/// Loads the library that multiplies, once; the functions below do so where nobody did. kUnsupported says why it cannot
/// be loaded.
Status LoadProducts();

/// Sets ATen single-threaded on this thread and switches its recording off. Cheap after the first call.
void PrepareProductThread();

/// A linear layer: out [rows, outputs] = a [rows, inputs] * weight [outputs, inputs]^T (+ bias [outputs], may be null).
template <typename T>
struct LinearArgs {
  const T* a = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* out = nullptr;
  std::int64_t rows = 0;  ///< at least 2: a single row takes other kernels with other bits
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
/// A row of `a` that holds a NaN or an infinity spoils its own results alone.
void Linear(const LinearArgs<float>& args);
void Linear(const LinearArgs<Bf16>& args);

/// out [m, n] = a [m, k] * b [n, k]^T.
void MultiplyTransposed(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k);
/// out [m, n] = a [m, k] * b [k, n], added to what is there where `accumulate`.
void Multiply(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k,
              bool accumulate);

/// Versions of the libraries that multiply, for the numerics environment: "torch 2.11.0, mkl 2024.2, onednn 3.10.2".
std::string ProductLibraries();

}  // namespace draftmill
