// Any bytes as a pipeline file: refused with places, or a configuration whose own YAML means the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/utf8.h"
#include "pipeline/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = draftmill::Config::Parse(text, {.path = "fuzz.yaml", .base_folder = ""}, {});
  if (!config.ok()) {
    if (!draftmill::IsValidUtf8(config.status().message())) std::abort();
    return 0;
  }
  const auto again = draftmill::Config::Parse(config->EffectiveYaml(), {.path = "again.yaml", .base_folder = ""}, {});
  if (!again.ok() || again->CanonicalJson() != config->CanonicalJson()) std::abort();
  return 0;
}
