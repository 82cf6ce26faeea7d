// The extraction engine of builds without torch: says so.
#include "stages/extract/extractor.h"

namespace draftmill {

Result<std::unique_ptr<Extractor>> Extractor::Create(const ExtractOptions&) {
  return Unsupported(
      "this draftmill was built without torch, so it cannot run a model; every other stage works. Build it with "
      "tools/setup.sh cpu and cmake --preset release, then run again: finished work is kept");
}

bool ExtractorIsBuilt() { return false; }

}  // namespace draftmill
