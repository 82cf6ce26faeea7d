#include "formats/shard_reader.h"

#include <limits>

namespace draftmill {
namespace {

using safetensors::Dtype;
using safetensors::TensorInfo;

Result<const TensorInfo*> StatesTensor(const TensorFile& file) {
  const TensorInfo* states = file.header().Find("hidden_states");
  if (states == nullptr || states->dtype != Dtype::kBf16 || states->shape.size() != 3 || states->bytes == 0 ||
      states != &file.header().tensors().front() || states->offset % kStatesAlignment != 0) {
    return Corrupt(file.path() + ": it does not begin with hidden_states BF16 [T, L, H] at a multiple of " +
                   std::to_string(kStatesAlignment));
  }
  return states;
}

Result<std::int64_t> ListLength(const TensorFile& file, std::string_view name) {
  const TensorInfo* tensor = file.header().Find(name);
  if (tensor == nullptr || tensor->shape.size() != 1 || tensor->bytes == 0) {
    return Corrupt(file.path() + ": it lacks a list named '" + std::string(name) + "'");
  }
  return tensor->shape[0];
}

Status ReadSideTensors(TensorFile& file, std::int64_t tokens, ShardContents& contents) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t samples, ListLength(file, "sample_id"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t boundaries, ListLength(file, "batch_offsets"));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.cu_seqlens, file.Read<std::int64_t>("cu_seqlens", Dtype::kI64, {samples + 1}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.sample_id, file.Read<std::int64_t>("sample_id", Dtype::kI64, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.token_hash, file.Read<std::uint64_t>("token_hash", Dtype::kU64, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.checksum, file.Read<std::uint64_t>("checksum", Dtype::kU64, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.batch_offsets,
                             file.Read<std::int64_t>("batch_offsets", Dtype::kI64, {boundaries}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.input_ids, file.Read<std::int32_t>("input_ids", Dtype::kI32, {tokens}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.variant, file.Read<std::int32_t>("variant", Dtype::kI32, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.loss_mask, file.Read<std::uint8_t>("loss_mask", Dtype::kU8, {tokens}));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.sample_state, file.Read<std::uint8_t>("sample_state", Dtype::kU8, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(const TensorInfo* hashes, file.Require("content_hash", Dtype::kU8, {samples, 16}));
  contents.content_hash.resize(static_cast<std::size_t>(samples));
  return safetensors::ReadTensorBytes(file.file(), file.path(), *hashes,
                                      std::as_writable_bytes(std::span<Hash128>(contents.content_hash)));
}

// Whether the list ascends strictly from 0 to `end`.
bool Partitions(const std::vector<std::int64_t>& boundaries, std::int64_t end) {
  if (boundaries.size() < 2 || boundaries.front() != 0 || boundaries.back() != end) return false;
  for (std::size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] <= boundaries[i - 1]) return false;
  }
  return true;
}

}  // namespace

Result<ShardReader> ShardReader::Open(FileSystem& file_system, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(file_system, path, kShardFormat));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string codec, file.RequireMetadata("codec"));
  if (codec != "none")
    return Unsupported(path + ": states packed with codec '" + codec + "'; this draftmill reads 'none'");
  DRAFTMILL_ASSIGN_OR_RETURN(const TensorInfo* states, StatesTensor(file));
  ShardContents contents;
  contents.num_layers = states->shape[1];
  contents.hidden_size = states->shape[2];
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t chunk, file.RequireNumber("chunk"));
  DRAFTMILL_ASSIGN_OR_RETURN(contents.shard, file.RequireNumber("shard"));
  if (chunk > std::numeric_limits<std::int32_t>::max()) return Corrupt(path + ": chunk " + std::to_string(chunk));
  contents.chunk = static_cast<std::int32_t>(chunk);
  DRAFTMILL_RETURN_IF_ERROR(ReadSideTensors(file, states->shape[0], contents));
  if (!Partitions(contents.cu_seqlens, contents.tokens())) {
    return Corrupt(path + ": cu_seqlens does not ascend from 0 to the number of tokens");
  }
  if (!Partitions(contents.batch_offsets, contents.samples())) {
    return Corrupt(path + ": batch_offsets does not ascend from 0 to the number of samples");
  }
  return ShardReader(std::move(file), std::move(contents));
}

Result<std::vector<std::uint16_t>> ShardReader::ReadStates(std::int64_t sample) {
  DRAFTMILL_CHECK(sample >= 0 && sample < contents_.samples(), "a sample of the shard");
  const auto at = static_cast<std::size_t>(sample);
  const std::int64_t tokens = contents_.cu_seqlens[at + 1] - contents_.cu_seqlens[at];
  std::vector<std::uint16_t> states(static_cast<std::size_t>(tokens * token_bytes() / 2));
  DRAFTMILL_RETURN_IF_ERROR(ReadStates(sample, 0, states));
  return states;
}

Status ShardReader::ReadStates(std::int64_t sample, std::int64_t first_token, std::span<std::uint16_t> out) {
  DRAFTMILL_CHECK(sample >= 0 && sample < contents_.samples(), "a sample of the shard");
  const std::int64_t begin = (contents_.cu_seqlens[static_cast<std::size_t>(sample)] + first_token) * token_bytes();
  return safetensors::ReadTensorBytes(file_.file(), file_.path(), *file_.header().Find("hidden_states"),
                                      std::as_writable_bytes(out), begin);
}

ShardBatch ShardReader::Batch(std::int64_t index) const {
  ShardBatch batch;
  batch.batch = index;
  batch.first_sample = contents_.batch_offsets[static_cast<std::size_t>(index)];
  const std::int64_t end_sample = contents_.batch_offsets[static_cast<std::size_t>(index) + 1];
  batch.samples = end_sample - batch.first_sample;
  batch.first_token = contents_.cu_seqlens[static_cast<std::size_t>(batch.first_sample)];
  batch.tokens = contents_.cu_seqlens[static_cast<std::size_t>(end_sample)] - batch.first_token;
  batch.offset = file_.header().data_start() + batch.first_token * token_bytes();
  batch.bytes = batch.tokens * token_bytes();
  return batch;
}

bool ShardReader::SampleIsRight(std::int64_t sample, std::uint64_t checksum, bool zero) const {
  const auto at = static_cast<std::size_t>(sample);
  if (checksum != contents_.checksum[at]) return false;
  // The mask of a quarantined sample is zero, so its token hash, which is that of the plan, says nothing here.
  if (contents_.sample_state[at] != 0) return zero;
  const auto begin = static_cast<std::size_t>(contents_.cu_seqlens[at]);
  return TokenHash(&contents_.input_ids[begin], &contents_.loss_mask[begin],
                   contents_.cu_seqlens[at + 1] - contents_.cu_seqlens[at]) == contents_.token_hash[at];
}

Result<std::string> ShardReader::ReadRange(std::int64_t begin, std::int64_t end) {
  std::string bytes(static_cast<std::size_t>(end - begin), '\0');
  Result<std::size_t> read = file_.file().ReadAt(begin, std::as_writable_bytes(std::span(bytes)));
  if (!read.ok()) return read.status().WithContext(file_.path());
  if (*read < bytes.size()) return Corrupt(file_.path() + ": the file became shorter while it was read");
  return bytes;
}

Result<ShardCheck> ShardReader::CheckBytes() {
  const std::int64_t states_begin = file_.header().data_start();
  const std::int64_t states_end = states_begin + contents_.tokens() * token_bytes();
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string header, ReadRange(0, states_begin));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string tail, ReadRange(states_end, file_bytes()));
  const ShardTokens tokens{contents_.input_ids, contents_.loss_mask, contents_.cu_seqlens};
  ShardCheck check;
  for (std::int64_t index = 0; index < contents_.batches(); ++index) {
    const ShardBatch batch = Batch(index);
    const auto states =
        std::span(contents_.sample_state)
            .subspan(static_cast<std::size_t>(batch.first_sample), static_cast<std::size_t>(batch.samples));
    DRAFTMILL_ASSIGN_OR_RETURN(const ShardBatchHashes hashes,
                               HashShardBatch(file_.file(), file_.path(), batch, token_bytes(), tokens, states));
    check.batch_digests.push_back(hashes.digest);
    for (std::int64_t i = 0; i < batch.samples; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!SampleIsRight(batch.first_sample + i, hashes.checksums[at], hashes.zero[at])) {
        check.damaged_samples.push_back(batch.first_sample + i);
      }
    }
  }
  check.digest = ShardDigest(ShardFrameDigest(header, tail), check.batch_digests);
  return check;
}

}  // namespace draftmill
