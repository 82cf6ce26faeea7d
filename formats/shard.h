// The shard file: where everything in it stands, what its metadata says, and how its bytes are hashed
// (docs/formats.md, "Shard").
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ShardLayout layout, LayOutShard(chunk.chunk, chunk.cu_seqlens, plan, 3, convention));
//   layout.batches[0].offset        // of the first batch's states, from the start of the file
//   layout.header.bytes             // everything before the states
//   BuildShardTail(layout, chunk, sample_state, checksum)   // everything after them
//
// A layout is a pure function of the chunk's plan, its lengths and the convention: any run lays out the same bytes, and
// a shard can be filled in any order. A file is header, states, tail; tensors in the order hidden_states, then those of
// 8, 4 and 1 bytes. Digests: of a batch, XXH3-128 of its states and then its sample_state bytes; of the frame, of
// header and tail; of the shard, of the frame's digest and then the batches' digests in their order.
//
// Plain values and pure functions, safe from any thread. Errors: kUnsupported for a hidden size that would leave
// tensors unaligned, kInternal for a plan that does not fit the lengths.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "formats/chunk_plan.h"
#include "formats/records.h"
#include "formats/safetensors.h"
#include "formats/tensor_file.h"

namespace draftmill {

inline constexpr FileFormat kShardFormat{.name = "draftmill.shard", .version = 1};

/// States begin at a multiple of this, so that they can be read and written by direct I/O.
inline constexpr std::int64_t kStatesAlignment = 4096;

/// How the states were made: the same for all shards of a run, written into each.
struct ShardConvention {
  std::vector<std::int32_t> layers;  ///< k of each x_k, in the order of hidden_states' second extent
  std::int32_t num_layers = 0;       ///< n of the model
  std::int32_t hidden_size = 0;
  std::string extract_fingerprint;
  std::string model_fingerprint;
  std::string tokenizer_fingerprint;
  std::string template_fingerprint;
  std::string mask_rule;             ///< the rule that made the loss mask with its parameters (JSON), or its name alone
  std::string numerics_environment;  ///< library versions, instruction set or GPU model
};

/// One batch of a shard.
struct ShardBatch {
  std::int64_t batch = 0;         ///< index in the chunk's plan
  std::int64_t first_sample = 0;  ///< in the shard
  std::int64_t samples = 0;
  std::int64_t first_token = 0;  ///< in the shard
  std::int64_t tokens = 0;
  std::int64_t offset = 0;  ///< of its states, from the start of the file
  std::int64_t bytes = 0;   ///< of its states
};

/// Where everything stands. N samples, T tokens, B batches.
struct ShardLayout {
  std::int32_t chunk = 0;
  std::int64_t shard = 0;
  std::string path;  ///< relative to the work folder
  safetensors::BuiltHeader header;
  std::int64_t token_bytes = 0;             ///< of one token's states: L * H * 2
  std::vector<std::int64_t> chunk_samples;  ///< [N] which sample of the chunk stands there
  std::vector<std::int64_t> cu_seqlens;     ///< [N+1]
  std::vector<std::int64_t> batch_offsets;  ///< [B+1] first sample of each batch, then N
  std::vector<ShardBatch> batches;          ///< [B]

  std::int64_t samples() const { return static_cast<std::int64_t>(chunk_samples.size()); }
  std::int64_t tokens() const { return cu_seqlens.back(); }
  std::int64_t file_bytes() const { return header.header.file_bytes(); }
  std::int64_t states_offset() const { return header.header.data_start(); }
  std::int64_t tail_offset() const { return states_offset() + tokens() * token_bytes; }
  std::int64_t tail_bytes() const { return file_bytes() - tail_offset(); }
  /// Where a tensor of the tail begins. The name must be one of a shard's tensors.
  std::int64_t TensorOffset(std::string_view name) const;
};

/// "shards/000012/c000012-s003.safetensors"
std::string ShardPath(std::int32_t chunk, std::int64_t shard);

/// The layout of shard `shard` of a chunk.
Result<ShardLayout> LayOutShard(std::int32_t chunk, std::span<const std::int64_t> cu_seqlens, const ChunkPlan& plan,
                                std::int64_t shard, const ShardConvention& convention);

/// Everything after the states: side tensors of the samples in their stored order. The mask of a sample whose state is
/// not 0 is zero. `sample_state` and `checksum` have one entry per sample.
std::string BuildShardTail(const ShardLayout& layout, const TokenizedChunk& chunk,
                           const std::vector<std::uint8_t>& sample_state, const std::vector<std::uint64_t>& checksum);

/// The digest of header and tail.
Hash128 ShardFrameDigest(std::string_view header, std::string_view tail);
/// The digest of the whole file, as it stands in database and manifest.
Hash128 ShardDigest(const Hash128& frame, std::span<const Hash128> batches);

/// Takes the states of one batch as they come, from memory or from a file, and gives the digests of the format.
class ShardBatchHasher {
 public:
  /// A sample begins: its ids and its mask as they stand in the shard.
  void BeginSample(std::span<const std::int32_t> input_ids, std::span<const std::uint8_t> loss_mask);
  /// The next bytes of this sample's states.
  void AddStates(std::span<const std::byte> states);
  /// The checksum of the sample that ends here.
  std::uint64_t EndSample();
  /// True if all states of the last sample were zero bytes.
  bool sample_was_zero() const { return sample_is_zero_; }
  /// The digest of the batch, after its last sample.
  Hash128 Finish(std::span<const std::uint8_t> sample_state);

 private:
  StreamingHash batch_;
  StreamingHash sample_;
  bool sample_is_zero_ = true;
};

/// What reading one batch's states gave.
struct ShardBatchHashes {
  Hash128 digest;
  std::vector<std::uint64_t> checksums;  ///< [samples of the batch]
  std::vector<bool> zero;                ///< [samples of the batch] all states are zero bytes
};

/// Ids and mask of the samples of a shard in stored order, as they stand in its tail.
struct ShardTokens {
  std::span<const std::int32_t> input_ids;
  std::span<const std::uint8_t> loss_mask;
  std::span<const std::int64_t> cu_seqlens;
};

/// Reads the states of one batch in pieces of a few MiB and hashes them.
Result<ShardBatchHashes> HashShardBatch(ReadableFile& file, const std::string& path, const ShardBatch& batch,
                                        std::int64_t token_bytes, const ShardTokens& tokens,
                                        std::span<const std::uint8_t> sample_state);

}  // namespace draftmill
