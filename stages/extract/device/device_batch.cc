#include "stages/extract/device/device_batch.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace draftmill {
namespace {

Status RefuseToken(SampleKey key, std::int32_t id, std::int64_t position, std::int64_t vocab_rows) {
  return InvalidInput("sample " + std::to_string(key.sample_id) + "/" + std::to_string(key.variant) + ": token id " +
                      std::to_string(id) + " at position " + std::to_string(position) + " is beyond the embedding's " +
                      std::to_string(vocab_rows) + " rows; the tokenizer and the model do not belong together");
}

}  // namespace

Result<DeviceBatch> PackDeviceBatch(const TokenizedChunk& chunk, const ChunkPlan& plan, std::int64_t index,
                                    std::int64_t vocab_rows) {
  const PlanRange range = plan.batches[static_cast<std::size_t>(index)];
  DeviceBatch batch;
  batch.states.chunk = chunk.chunk;
  batch.states.batch = static_cast<std::int32_t>(index);
  batch.cu_seqlens.push_back(0);
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
    const auto sample = static_cast<std::size_t>(plan.order[static_cast<std::size_t>(i)]);
    const SampleKey key{chunk.sample_id[sample], chunk.variant[sample]};
    const std::int64_t begin = chunk.cu_seqlens[sample];
    const std::int64_t tokens = chunk.cu_seqlens[sample + 1] - begin;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t id = chunk.input_ids[static_cast<std::size_t>(begin + t)];
      if (id < 0 || id >= vocab_rows) return RefuseToken(key, id, t, vocab_rows);
      batch.input_ids.push_back(id);
      batch.positions.push_back(static_cast<std::int32_t>(t));
      batch.sample.push_back(static_cast<std::int32_t>(i - range.first));
    }
    batch.states.keys.push_back(key);
    batch.states.token_hashes.push_back(
        TokenHash(chunk.input_ids.data() + begin, chunk.loss_mask.data() + begin, tokens));
    batch.tokens += tokens;
    batch.longest = std::max(batch.longest, tokens);
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens));
  }
  batch.states.sample_state.assign(batch.states.keys.size(), 0);
  return batch;
}

}  // namespace draftmill
