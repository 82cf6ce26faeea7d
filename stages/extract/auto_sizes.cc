#include "stages/extract/auto_sizes.h"

#include <string>

namespace draftmill {
namespace {

/// Four tiles: enough samples for a full batch, small enough that a lost block is soon computed again.
constexpr std::int64_t kBatchTokens = 4096;
constexpr std::int64_t kMostBatchesInBlock = 4;
constexpr std::int64_t kFewestTokens = 1024;

}  // namespace

std::int64_t ExtractBytes(const ModelDescription& model, const ExtractOptions& options, std::int64_t block_tokens) {
  const EngineMemory& memory = model.memory;
  return memory.resident_bytes + memory.shared_bytes + memory.thread_bytes * options.threads +
         memory.token_bytes * block_tokens;
}

Result<ExtractSizes> ResolveAuto(const ModelDescription& model, const ExtractOptions& options) {
  const auto fits = [&](std::int64_t tokens) {
    return options.memory_bytes <= 0 || ExtractBytes(model, options, tokens) <= options.memory_bytes;
  };
  for (std::int64_t batches = kMostBatchesInBlock; batches >= 1; --batches) {
    if (fits(batches * kBatchTokens)) return ExtractSizes{kBatchTokens, batches * kBatchTokens};
  }
  for (std::int64_t tokens = kBatchTokens / 2; tokens >= kFewestTokens; tokens /= 2) {
    if (fits(tokens)) return ExtractSizes{tokens, tokens};
  }
  return OutOfMemory("the model does not fit in limits.memory: it needs " +
                     std::to_string(ExtractBytes(model, options, kFewestTokens)) + " bytes for weights and the smallest block, " +
                     std::to_string(options.memory_bytes) +
                     " are allowed for extraction. Raise limits.memory, or take fewer limits.threads.");
}

}  // namespace draftmill
