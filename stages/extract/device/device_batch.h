// A planned batch as a GPU takes it: tokens back to back, with the arrays that its kernels read.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(DeviceBatch batch, PackDeviceBatch(chunk, plan, index, model.vocab_rows));
//
// Plain functions and values, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

/// Rows of a batch's products are a multiple of this: few distinct shapes, full tiles. The last rows are padding, whose
/// results nobody reads.
inline constexpr std::int64_t kRowMultiple = 128;

/// Rows of the products of a batch of so many tokens.
inline std::int64_t RowsFor(std::int64_t tokens) { return (tokens + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }

struct DeviceBatch {
  BatchStates states;  ///< with identity, without states
  std::int64_t tokens = 0;
  std::int64_t longest = 0;              ///< tokens of the longest sample
  std::vector<std::int32_t> input_ids;   ///< [tokens], each below the embedding's rows
  std::vector<std::int32_t> positions;   ///< [tokens], from 0 in each sample
  std::vector<std::int32_t> sample;      ///< [tokens], index of each token's sample in the batch
  std::vector<std::int32_t> cu_seqlens;  ///< [samples + 1]

  std::int64_t samples() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
  /// Rows of its products.
  std::int64_t rows() const { return RowsFor(tokens); }
};

/// Packs a batch and takes down who its samples are. Refuses, by sample, ids beyond the embedding.
Result<DeviceBatch> PackDeviceBatch(const TokenizedChunk& chunk, const ChunkPlan& plan, std::int64_t index,
                                    std::int64_t vocab_rows);

}  // namespace draftmill
