// Any bytes as an array of vocab/: refused, or exactly the bytes that its values are written as.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto numbers = draftmill::ReadNpyInt64(file, "fuzz");
  if (numbers.ok() && draftmill::NpyOfInt64(*numbers) != file) std::abort();
  const auto flags = draftmill::ReadNpyBool(file, "fuzz");
  if (flags.ok() && draftmill::NpyOfBool(*flags) != file) std::abort();
  return 0;
}
