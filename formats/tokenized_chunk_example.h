// A small tokenized chunk with consistent lengths and hashes, for tests of what reads and writes chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "formats/records.h"

namespace draftmill {

/// Samples of these lengths; ids count up from 100 * sample, the first token of each sample is unsupervised.
inline TokenizedChunk ExampleChunk(std::int32_t number, const std::vector<std::int64_t>& lengths) {
  TokenizedChunk chunk;
  chunk.chunk = number;
  chunk.cu_seqlens.push_back(0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto sample = static_cast<std::int32_t>(i);
    for (std::int64_t token = 0; token < lengths[i]; ++token) {
      chunk.input_ids.push_back(100 * sample + static_cast<std::int32_t>(token));
      chunk.loss_mask.push_back(token > 0 ? 1 : 0);
    }
    const std::int64_t begin = chunk.cu_seqlens.back();
    chunk.cu_seqlens.push_back(begin + lengths[i]);
    chunk.sample_id.push_back(1000 * std::int64_t{number} + sample / 2);
    chunk.variant.push_back(sample % 2);
    chunk.content_hash.push_back(HashBytes128("conversation " + std::to_string(sample / 2)));
    chunk.token_hash.push_back(TokenHash(&chunk.input_ids[static_cast<std::size_t>(begin)],
                                         &chunk.loss_mask[static_cast<std::size_t>(begin)], lengths[i]));
    chunk.source.push_back(sample % 3 == 0 ? 0 : 1);
    chunk.turn.push_back(1);
  }
  return chunk;
}

}  // namespace draftmill
