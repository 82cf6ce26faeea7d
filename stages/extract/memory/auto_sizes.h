// What `auto` means for weights, batch_tokens and block_tokens: a pure function of the model and the limits. The sizes are
// resolved once at the first start of a run and stored with it; where the weights live is decided anew at each start and
// changes no byte.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

enum class WeightPolicy : std::uint8_t {
  kResident,  ///< all layers in memory
  kStreamed,  ///< layers are read from disk when their turn comes
};

/// Most layers that a user of a store of weights may hold: one that is finished and the next one.
inline constexpr int kHeldLayers = 2;

/// Where the weights live.
struct WeightStoreOptions {
  WeightPolicy policy = WeightPolicy::kResident;
  int slots = kHeldLayers + 1;  ///< kStreamed: layers that have room in memory; one more than are held reads ahead
};

/// The policy that options.weights names; for `auto`, resident wherever a small block still fits beside the weights in
/// options.memory_bytes. Streamed keeps one layer less in memory where reading ahead does not fit. A limit of 0 bytes
/// means none.
WeightStoreOptions PlanWeights(const ModelDescription& model, const ExtractOptions& options);

struct ExtractSizes {
  std::int64_t batch_tokens = 0;
  std::int64_t block_tokens = 0;
};

/// The sizes for a run that states neither. kOutOfMemory names limits.memory where not even one small batch fits.
Result<ExtractSizes> ResolveAuto(const ModelDescription& model, const ExtractOptions& options);

/// Everything that a block of so many tokens takes, weights included.
std::int64_t ExtractBytes(const ModelDescription& model, const ExtractOptions& options, std::int64_t block_tokens);

}  // namespace draftmill
