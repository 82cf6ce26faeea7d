// A block of packed tokens as the decoder takes it, whatever device computes it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/bfloat16.h"

namespace draftmill {

/// A sample's tokens within the block.
struct PackedSequence {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
};

/// At most kTileRows consecutive tokens of one batch.
struct PackedTile {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  /// Where the captured layers of the tile's first token go: [rows, layers, hidden]. At most one of the two is set;
  /// none where the tile is computed for the sake of others (experts work on the whole block).
  Bf16* capture = nullptr;
  float* capture_float = nullptr;
};

/// A block of tokens. Offsets count all of the block's batches, also those that are not computed, so that every product
/// has the same operands at the same alignment in every run.
struct PackedBlock {
  std::int64_t tokens = 0;
  std::vector<std::int32_t> input_ids;    ///< [tokens], each below the embedding's rows
  std::vector<PackedSequence> sequences;  ///< that are computed
  std::vector<PackedTile> tiles;          ///< that are computed
};

}  // namespace draftmill
