// Any bytes as manifest.json: refused, or a manifest that is written and read back as itself.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "formats/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = draftmill::ParseManifest({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!manifest.ok()) return 0;
  const std::string written = draftmill::ManifestText(*manifest);
  const auto again = draftmill::ParseManifest(written, "fuzz");
  if (!again.ok() || draftmill::ManifestText(*again) != written) std::abort();
  return 0;
}
