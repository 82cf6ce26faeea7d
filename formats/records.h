// The records that pass between stages. Identity travels with the data: sample id, variant and token hash go from the
// reader to the shard and are checked again at the writer (docs/architecture.md).
//
// Plain values; moved along, never shared for writing. Sizes are in the units that the names say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"

namespace draftmill {

/// The key of a sample everywhere.
struct SampleKey {
  std::int64_t sample_id = 0;  ///< number of the conversation in the run's global order
  std::int32_t variant = 0;    ///< which of the samples made from it
  friend auto operator<=>(const SampleKey&, const SampleKey&) = default;
};

/// Where a row stood in its source.
struct RowPlace {
  std::int32_t source = 0;       ///< index into the run's list of source files (table `sources`)
  std::int64_t row = 0;          ///< 0-based row of that file
  std::int64_t line = 0;         ///< 1-based line; 0 for a file that is one JSON list
  std::int64_t byte_offset = 0;  ///< of the row in the unpacked file
};

/// A row or sample that went to quarantine instead of on.
struct Failure {
  std::string stage;    ///< "ingest", "tokenize", "extract"
  std::string reason;   ///< a fixed word for counting, e.g. "broken_json", "unknown_role", "no_supervised_token"
  std::string message;  ///< the particulars, for people
  RowPlace place;
  SampleKey key{-1, 0};  ///< sample_id -1 where the row never got a number
};

/// One ingested conversation in canonical form (docs/formats.md, "ingested rows").
struct IngestedRow {
  std::int64_t sample_id = 0;
  Hash128 content_hash;  ///< XXH3-128 of the canonical JSON of messages and tools
  RowPlace place;
  json::Value conversation;  ///< object: messages, and tools, or input_ids + loss_mask for a pre-tokenized row
};

/// All rows of one chunk, in global order.
struct IngestedChunk {
  std::int32_t chunk = 0;
  std::vector<IngestedRow> rows;
};

/// One chunk after tokenization: what corpus/chunk-NNNNNN.safetensors holds, with what the state database wants to know.
/// T = all tokens, N = samples. Samples stand in ascending (sample_id, variant).
struct TokenizedChunk {
  std::int32_t chunk = 0;
  std::vector<std::int32_t> input_ids;    ///< [T]
  std::vector<std::uint8_t> loss_mask;    ///< [T], 0 or 1
  std::vector<std::int64_t> cu_seqlens;   ///< [N+1], first 0
  std::vector<std::int64_t> sample_id;    ///< [N]
  std::vector<std::int32_t> variant;      ///< [N]
  std::vector<Hash128> content_hash;      ///< [N]
  std::vector<std::uint64_t> token_hash;  ///< [N], TokenHash of each sample
  std::vector<std::int32_t> source;       ///< [N]; not in the corpus file
  std::vector<std::int32_t> turn;         ///< [N]; index of the last supervised message, not in the corpus file
  std::vector<Failure> failures;          ///< rows that went to quarantine here

  std::int64_t samples() const { return static_cast<std::int64_t>(sample_id.size()); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(input_ids.size()); }
};

/// XXH3-64 of a sample's ids (int32 little-endian) followed by its mask bytes: design's `token_hash`.
std::uint64_t TokenHash(const std::int32_t* input_ids, const std::uint8_t* loss_mask, std::int64_t tokens);

}  // namespace draftmill
