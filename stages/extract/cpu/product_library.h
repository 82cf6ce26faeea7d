// The library that multiplies, as products.h sees it: a plug-in, because libtorch takes a fifth of a second to load, which
// every command would pay that multiplies nothing. It is libdraftmill_products.so (stages/extract/plugin.h).
#pragma once

#include <cstdint>
#include <string>

#include "stages/extract/cpu/products.h"

namespace draftmill {

/// The functions of products.h, which says what they do.
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  virtual void PrepareThread() const = 0;
  virtual void Linear(const LinearArgs<float>& args) const = 0;
  virtual void Linear(const LinearArgs<Bf16>& args) const = 0;
  virtual void MultiplyTransposed(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n,
                                  std::int64_t k) const = 0;
  virtual void Multiply(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k,
                        bool accumulate) const = 0;
  virtual std::string Versions() const = 0;
};

inline constexpr const char* kProductLibrarySymbol = "draftmill_product_library";

}  // namespace draftmill
