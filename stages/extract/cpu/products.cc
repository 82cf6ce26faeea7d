#include "stages/extract/cpu/products.h"

#include <stdexcept>

#include "stages/extract/cpu/product_library.h"
#include "stages/extract/plugin.h"

namespace draftmill {
namespace {

constexpr const char* kPluginName = "libdraftmill_products.so";

const Result<const ProductLibrary*>& Loaded() {
  static const Result<const ProductLibrary*> library = LoadPlugin<ProductLibrary>(kPluginName, kProductLibrarySymbol);
  return library;
}

const ProductLibrary& Library() {
  if (!Loaded().ok()) throw std::runtime_error(Loaded().status().message());
  return **Loaded();
}

}  // namespace

Status LoadProducts() { return Loaded().status(); }

void PrepareProductThread() {
  thread_local bool prepared = false;
  if (prepared) return;
  Library().PrepareThread();
  prepared = true;
}

void Linear(const LinearArgs<float>& args) { Library().Linear(args); }
void Linear(const LinearArgs<Bf16>& args) { Library().Linear(args); }

void MultiplyTransposed(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k) {
  Library().MultiplyTransposed(a, b, out, m, n, k);
}

void Multiply(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k,
              bool accumulate) {
  Library().Multiply(a, b, out, m, n, k, accumulate);
}

std::string ProductLibraries() { return Library().Versions(); }

}  // namespace draftmill
