#include "stages/extract/memory/auto_sizes.h"

#include <string>

#include "stages/extract/memory/device_policy.h"

namespace draftmill {
namespace {

/// Four tiles: enough samples for a full batch, small enough that a lost block is soon computed again.
constexpr std::int64_t kBatchTokens = 4096;
constexpr std::int64_t kMostBatchesInBlock = 4;
/// Streamed weights are read once a block, so larger ones pay.
constexpr std::int64_t kMostBatchesInStreamedBlock = 16;
constexpr std::int64_t kFewestTokens = 1024;

std::int64_t BytesWith(const ModelDescription& model, const ExtractOptions& options, const WeightStoreOptions& weights,
                       std::int64_t block_tokens) {
  const EngineMemory& memory = model.memory;
  const std::int64_t of_weights = weights.policy == WeightPolicy::kResident
                                      ? memory.resident_bytes
                                      : weights.slots * memory.layer_bytes + memory.reading_bytes;
  return of_weights + memory.shared_bytes + memory.thread_bytes * options.threads + memory.token_bytes * block_tokens;
}

bool Fits(const ModelDescription& model, const ExtractOptions& options, const WeightStoreOptions& weights,
          std::int64_t tokens) {
  return options.memory_bytes <= 0 || BytesWith(model, options, weights, tokens) <= options.memory_bytes;
}

}  // namespace

WeightStoreOptions PlanWeights(const ModelDescription& model, const ExtractOptions& options) {
  const WeightStoreOptions resident{WeightPolicy::kResident};
  const WeightStoreOptions ahead{WeightPolicy::kStreamed, kHeldLayers + 1};
  if (options.weights == "resident") return resident;
  if (options.weights != "streamed" && Fits(model, options, resident, kFewestTokens)) return resident;
  if (Fits(model, options, ahead, kBatchTokens)) return ahead;
  return {WeightPolicy::kStreamed, kHeldLayers};
}

std::int64_t ExtractBytes(const ModelDescription& model, const ExtractOptions& options, std::int64_t block_tokens) {
  return BytesWith(model, options, PlanWeights(model, options), block_tokens);
}

Result<ExtractSizes> ResolveAuto(const ModelDescription& model, const ExtractOptions& options) {
  if (options.device == "cuda") {
    DRAFTMILL_ASSIGN_OR_RETURN(const DevicePlan plan, PlanDevices(model, options));
    return plan.sizes;
  }
  const WeightStoreOptions weights = PlanWeights(model, options);
  const bool streamed = weights.policy == WeightPolicy::kStreamed;
  for (std::int64_t batches = streamed ? kMostBatchesInStreamedBlock : kMostBatchesInBlock; batches >= 1; --batches) {
    if (Fits(model, options, weights, batches * kBatchTokens))
      return ExtractSizes{kBatchTokens, batches * kBatchTokens};
  }
  for (std::int64_t tokens = kBatchTokens / 2; tokens >= kFewestTokens; tokens /= 2) {
    if (Fits(model, options, weights, tokens)) return ExtractSizes{tokens, tokens};
  }
  const std::string advice =
      streamed ? "Raise limits.memory, or take fewer limits.threads."
               : "Raise limits.memory, take fewer limits.threads, or set extract.weights to streamed.";
  return OutOfMemory("the model does not fit in limits.memory: it needs " +
                     std::to_string(ExtractBytes(model, options, kFewestTokens)) + " bytes for " +
                     (streamed ? "the layers in memory" : "weights") + " and the smallest block, " +
                     std::to_string(options.memory_bytes) + " are allowed for extraction. " + advice);
}

}  // namespace draftmill
