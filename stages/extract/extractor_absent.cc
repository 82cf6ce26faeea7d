// The extraction engine of builds without torch: says so.
#include "stages/extract/cpu/head_reading.h"
#include "stages/extract/extractor.h"

namespace draftmill {
namespace {

Status Absent() {
  return Unsupported(
      "this draftmill was built without torch, so it cannot run a model; every other stage works. Build it with "
      "tools/setup.sh cpu and cmake --preset release, then run again: finished work is kept");
}

}  // namespace

Result<std::unique_ptr<Extractor>> Extractor::Create(const ExtractOptions&) { return Absent(); }

Result<HeadAgreement> ReadHeadOfFolder(const std::string&, std::span<const float>, std::span<const CheckedTokens>) {
  return Absent();
}

Status ResolveDevice(const ModelDescription& /*model*/, ExtractOptions& options) {
  options.device = "cpu";  // sizes are planned for it; nothing runs here
  return OkStatus();
}

Status ClaimDevices(ExtractOptions& /*options*/) { return OkStatus(); }

Status LoadEngineLibraries(const ExtractOptions& /*options*/) { return Absent(); }

bool ExtractorIsBuilt() { return false; }

}  // namespace draftmill
