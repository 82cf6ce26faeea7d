// Any bytes are either refused or are a header whose tensors lie within the file, and which can be built again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/memory_file.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace draftmill;
  MemoryFile file(std::string(reinterpret_cast<const char*>(data), size));
  const Result<safetensors::Header> header = safetensors::ReadHeader(file, "fuzz");
  if (!header.ok()) return 0;
  for (const safetensors::TensorInfo& tensor : header->tensors()) {
    if (tensor.offset < 8 || tensor.bytes < 0 || tensor.offset + tensor.bytes > static_cast<std::int64_t>(size))
      abort();
    if (header->Find(tensor.name) != &tensor) abort();
    std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
    if (!safetensors::ReadTensorBytes(file, "fuzz", tensor, std::as_writable_bytes(std::span(bytes))).ok()) abort();
  }
  return 0;
}
