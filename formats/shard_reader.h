// Reads a published shard: what it says about its samples, the states of one sample, and whether all bytes are right.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::Open(file_system, path));
//   DRAFTMILL_ASSIGN_OR_RETURN(std::vector<std::uint16_t> states, shard.ReadStates(7));   // bf16 bits, [t, L, H]
//   DRAFTMILL_ASSIGN_OR_RETURN(ShardCheck check, shard.CheckBytes());
//
// Opening reads header and tail (a few bytes a token), no states. The file stands for itself: no database is needed.
// Errors: kCorrupt names the file and what is wrong, kUnsupported a later format version, kNotFound, kIo.
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "formats/records.h"
#include "formats/shard.h"
#include "formats/tensor_file.h"
#include "state/file_system.h"

namespace draftmill {

/// The side tensors of a shard and what its metadata says of its shape. N samples, T tokens, B batches.
struct ShardContents {
  std::int32_t chunk = 0;
  std::int64_t shard = 0;
  std::int64_t num_layers = 0;  ///< extent of hidden_states: layers kept, not layers of the model
  std::int64_t hidden_size = 0;
  std::vector<std::int64_t> cu_seqlens;     ///< [N+1]
  std::vector<std::int64_t> sample_id;      ///< [N]
  std::vector<std::uint64_t> token_hash;    ///< [N]
  std::vector<std::uint64_t> checksum;      ///< [N]
  std::vector<std::int64_t> batch_offsets;  ///< [B+1] first sample of each batch, then N
  std::vector<std::int32_t> input_ids;      ///< [T]
  std::vector<std::int32_t> variant;        ///< [N]
  std::vector<std::uint8_t> loss_mask;      ///< [T]
  std::vector<Hash128> content_hash;        ///< [N]
  std::vector<std::uint8_t> sample_state;   ///< [N]

  std::int64_t samples() const { return static_cast<std::int64_t>(sample_id.size()); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(input_ids.size()); }
  std::int64_t batches() const { return static_cast<std::int64_t>(batch_offsets.size()) - 1; }
  SampleKey key(std::int64_t sample) const {
    return {sample_id[static_cast<std::size_t>(sample)], variant[static_cast<std::size_t>(sample)]};
  }
};

/// What reading all bytes of a shard gave.
struct ShardCheck {
  Hash128 digest;                      ///< of the file, to be held against database or manifest
  std::vector<Hash128> batch_digests;  ///< [B]
  std::vector<std::int64_t>
      damaged_samples;  ///< in the shard, ascending: checksum, token hash or zeroed states are wrong
};

class ShardReader {
 public:
  /// Reads header and tail and checks that they fit each other.
  static Result<ShardReader> Open(FileSystem& file_system, const std::string& path);

  const ShardContents& contents() const { return contents_; }
  /// All metadata, for `inspect`.
  const safetensors::Metadata& metadata() const { return file_.header().metadata(); }
  std::int64_t file_bytes() const { return file_.header().file_bytes(); }

  /// The states of one sample of the shard as bf16 bits, [t, L, H]; one contiguous read.
  Result<std::vector<std::uint16_t>> ReadStates(std::int64_t sample);
  /// Part of them: tokens from `first_token` of the sample on, until `out` is full. More than the sample has is a bug.
  Status ReadStates(std::int64_t sample, std::int64_t first_token, std::span<std::uint16_t> out);

  /// Reads everything once and gives all digests and the samples that do not match their own.
  Result<ShardCheck> CheckBytes();

 private:
  ShardReader(TensorFile file, ShardContents contents) : file_(std::move(file)), contents_(std::move(contents)) {}

  std::int64_t token_bytes() const { return contents_.num_layers * contents_.hidden_size * 2; }
  ShardBatch Batch(std::int64_t index) const;
  bool SampleIsRight(std::int64_t sample, std::uint64_t checksum, bool zero) const;
  Result<std::string> ReadRange(std::int64_t begin, std::int64_t end);

  TensorFile file_;
  ShardContents contents_;
};

}  // namespace draftmill
