// The plug-in that multiplies: ATen behind product_library.h.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/InferenceMode.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "stages/extract/cpu/product_library.h"

namespace draftmill {
namespace {

at::Tensor View(const float* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<float*>(data), {rows, cols}, at::kFloat);  // NOLINT: only results are written
}
at::Tensor View(const Bf16* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<Bf16*>(data), {rows, cols}, at::kBFloat16);  // NOLINT: only results are written
}

template <typename T>
void LinearOf(const LinearArgs<T>& args) {
  const c10::InferenceMode inference;
  at::Tensor out = View(args.out, args.rows, args.outputs);
  const at::Tensor a = View(args.a, args.rows, args.inputs);
  const at::Tensor weight = View(args.weight, args.outputs, args.inputs).t();
  if (args.bias == nullptr) {
    at::mm_out(out, a, weight);
  } else {
    at::addmm_out(out, View(args.bias, 1, args.outputs), a, weight);
  }
}

/// oneDNN's tiles of bfloat16 (AMX) hold 32 values of a row. Where a row is no multiple of that long, the last tile takes the
/// next row's beginning too, times zero: a NaN or an infinity there would spoil this row.
constexpr std::int64_t kTileValues = 32;

bool IsFinite(Bf16 value) {
  constexpr std::uint16_t kExponent = 0x7f80;
  return (value.bits & kExponent) != kExponent;
}

/// The rows of `a` that hold a NaN or an infinity.
std::vector<std::int64_t> BadRows(const LinearArgs<Bf16>& args) {
  std::vector<std::int64_t> bad;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const Bf16* const first = args.a + row * args.inputs;
    if (!std::all_of(first, first + args.inputs, IsFinite)) bad.push_back(row);
  }
  return bad;
}

/// The product without those rows, whose results are NaN.
void LinearWithout(const std::vector<std::int64_t>& bad, LinearArgs<Bf16> args) {
  std::vector<Bf16> cleaned(args.a, args.a + args.rows * args.inputs);
  for (const std::int64_t row : bad) std::fill_n(cleaned.begin() + row * args.inputs, args.inputs, Bf16{0});
  args.a = cleaned.data();
  LinearOf(args);
  constexpr Bf16 kNan{0x7fc0};
  for (const std::int64_t row : bad) std::fill_n(args.out + row * args.outputs, args.outputs, kNan);
}

/// "... v1.2.3 ..." or "... Version 2024.2-Product ..." without what stands round the number.
std::string NumberIn(const std::string& text) {
  const std::size_t begin =
      text.find_first_of("0123456789", text.find(") ") == std::string::npos ? 0 : text.find(") "));
  if (begin == std::string::npos) return "unknown";
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

class TorchProducts : public ProductLibrary {
 public:
  void PrepareThread() const override { at::set_num_threads(1); }

  void Linear(const LinearArgs<float>& args) const override { LinearOf(args); }
  void Linear(const LinearArgs<Bf16>& args) const override {
    if (args.inputs % kTileValues != 0) {
      const std::vector<std::int64_t> bad = BadRows(args);
      if (!bad.empty()) return LinearWithout(bad, args);
    }
    LinearOf(args);
  }

  void MultiplyTransposed(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n,
                          std::int64_t k) const override {
    const c10::InferenceMode inference;
    at::Tensor result = View(out, m, n);
    at::mm_out(result, View(a, m, k), View(b, n, k).t());
  }

  void Multiply(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k,
                bool accumulate) const override {
    const c10::InferenceMode inference;
    at::Tensor result = View(out, m, n);
    if (accumulate) {
      at::addmm_out(result, result, View(a, m, k), View(b, k, n));
    } else {
      at::mm_out(result, View(a, m, k), View(b, k, n));
    }
  }

  std::string Versions() const override {
    return std::string("torch ") + TORCH_VERSION + ", mkl " + NumberIn(at::get_mkl_version()) + ", onednn " +
           NumberIn(at::get_mkldnn_version());
  }
};

}  // namespace
}  // namespace draftmill

/// The plug-in's only symbol.
extern "C" const draftmill::ProductLibrary* draftmill_product_library(const char* version) {
  static const draftmill::TorchProducts products;
  return std::string_view(version) == DRAFTMILL_VERSION ? &products : nullptr;
}
