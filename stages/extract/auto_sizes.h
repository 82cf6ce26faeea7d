// What `auto` means for batch_tokens and block_tokens: a pure function of the model and the limits, resolved once at the
// first start of a run and stored with it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

struct ExtractSizes {
  std::int64_t batch_tokens = 0;
  std::int64_t block_tokens = 0;
};

/// The sizes for a run that states neither. kOutOfMemory names limits.memory where not even one batch fits; a limit of
/// 0 bytes means none.
Result<ExtractSizes> ResolveAuto(const ModelDescription& model, const ExtractOptions& options);

/// Everything that a block of so many tokens takes, weights included.
std::int64_t ExtractBytes(const ModelDescription& model, const ExtractOptions& options, std::int64_t block_tokens);

}  // namespace draftmill
