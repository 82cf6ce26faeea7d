#include "formats/shard.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace draftmill {
namespace {

using safetensors::Dtype;
using safetensors::TensorSpec;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
/// Both hashes take a piece while it lies in the processor's cache: memory is read once.
constexpr std::size_t kHashedPieceBytes = std::size_t{256} << 10;

std::string LayerList(const std::vector<std::int32_t>& layers) {
  std::string text = "[";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(layers[i]);
  }
  return text + "]";
}

safetensors::Metadata ShardMetadata(std::int32_t chunk, std::int64_t shard, const Hash128& plan_hash,
                                    const ShardConvention& convention) {
  safetensors::Metadata metadata = FormatMetadata(kShardFormat);
  const std::initializer_list<std::pair<std::string, std::string>> entries = {
      {"chunk", std::to_string(chunk)},
      {"shard", std::to_string(shard)},
      {"extract_fingerprint", convention.extract_fingerprint},
      {"plan_hash", ToHex(plan_hash)},
      {"model_fingerprint", convention.model_fingerprint},
      {"tokenizer_fingerprint", convention.tokenizer_fingerprint},
      {"template_fingerprint", convention.template_fingerprint},
      {"layers", LayerList(convention.layers)},
      {"layer_index", "hf"},
      {"num_layers", std::to_string(convention.num_layers)},
      {"final_norm", "pre"},
      {"shift", "none"},
      {"mask_rule", convention.mask_rule},
      {"dtype", "bfloat16"},
      {"codec", "none"},
      {"numerics_environment", convention.numerics_environment},
  };
  metadata.insert(metadata.end(), entries.begin(), entries.end());
  return metadata;
}

std::vector<TensorSpec> ShardTensors(std::int64_t samples, std::int64_t tokens, std::int64_t batches,
                                     const ShardConvention& convention) {
  return {{"hidden_states",
           Dtype::kBf16,
           {tokens, static_cast<std::int64_t>(convention.layers.size()), convention.hidden_size}},
          {"cu_seqlens", Dtype::kI64, {samples + 1}},
          {"sample_id", Dtype::kI64, {samples}},
          {"token_hash", Dtype::kU64, {samples}},
          {"checksum", Dtype::kU64, {samples}},
          {"batch_offsets", Dtype::kI64, {batches + 1}},
          {"input_ids", Dtype::kI32, {tokens}},
          {"variant", Dtype::kI32, {samples}},
          {"loss_mask", Dtype::kU8, {tokens}},
          {"content_hash", Dtype::kU8, {samples, 16}},
          {"sample_state", Dtype::kU8, {samples}}};
}

bool RangeFits(const PlanRange& range, std::size_t size) {
  return range.first >= 0 && range.count > 0 && range.first <= static_cast<std::int64_t>(size) &&
         range.count <= static_cast<std::int64_t>(size) - range.first;
}

// Samples, lengths and batches of the shard; offsets come when the header is known.
Status PlaceBatches(std::span<const std::int64_t> cu_seqlens, const ChunkPlan& plan, const PlanRange& shard,
                    ShardLayout& layout) {
  layout.cu_seqlens = {0};
  for (std::int64_t i = shard.first; i < shard.first + shard.count; ++i) {
    const PlanRange& range = plan.batches[static_cast<std::size_t>(i)];
    if (!RangeFits(range, plan.order.size()))
      return Internal("batch " + std::to_string(i) + " of the plan is no range");
    ShardBatch batch{.batch = i, .first_sample = layout.samples(), .first_token = layout.tokens()};
    for (std::int64_t place = range.first; place < range.first + range.count; ++place) {
      const std::int64_t sample = plan.order[static_cast<std::size_t>(place)];
      if (sample < 0 || sample + 1 >= static_cast<std::int64_t>(cu_seqlens.size())) {
        return Internal("the plan names sample " + std::to_string(sample) + ", which the chunk does not have");
      }
      const auto at = static_cast<std::size_t>(sample);
      layout.chunk_samples.push_back(sample);
      layout.cu_seqlens.push_back(layout.tokens() + cu_seqlens[at + 1] - cu_seqlens[at]);
    }
    batch.samples = range.count;
    batch.tokens = layout.tokens() - batch.first_token;
    layout.batch_offsets.push_back(batch.first_sample);
    layout.batches.push_back(batch);
  }
  layout.batch_offsets.push_back(layout.samples());
  return OkStatus();
}

template <typename T>
class TensorBytes {
 public:
  // Values go to the place of the tensor in the tail.
  TensorBytes(const ShardLayout& layout, std::string_view name, std::string& tail)
      : at_(tail.data() + (layout.TensorOffset(name) - layout.tail_offset())) {}

  void Append(std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(at_, values.data(), values.size_bytes());
    at_ += values.size_bytes();
  }
  void Append(const T& value) { Append(std::span<const T>(&value, 1)); }
  // Leaves values as they are: zero.
  void Skip(std::size_t count) { at_ += count * sizeof(T); }

 private:
  char* at_;
};

}  // namespace

std::int64_t ShardLayout::TensorOffset(std::string_view name) const {
  const safetensors::TensorInfo* tensor = header.header.Find(name);
  DRAFTMILL_CHECK(tensor != nullptr, "a shard has no tensor " + std::string(name));
  return tensor->offset;
}

std::string ShardPath(std::int32_t chunk, std::int64_t shard) {
  char path[80];
  std::snprintf(path, sizeof path, "shards/%06d/c%06d-s%03lld.safetensors", chunk, chunk,
                static_cast<long long>(shard));
  return path;
}

Result<ShardLayout> LayOutShard(std::int32_t chunk, std::span<const std::int64_t> cu_seqlens, const ChunkPlan& plan,
                                std::int64_t shard, const ShardConvention& convention) {
  if (convention.hidden_size <= 0 || convention.hidden_size % 4 != 0 || convention.layers.empty()) {
    return Unsupported("states of " + std::to_string(convention.layers.size()) + " layers and hidden size " +
                       std::to_string(convention.hidden_size) +
                       ": shards hold at least one layer and a hidden size that is a multiple of 4");
  }
  if (shard < 0 || shard >= static_cast<std::int64_t>(plan.shards.size()) ||
      !RangeFits(plan.shards[static_cast<std::size_t>(shard)], plan.batches.size())) {
    return Internal("chunk " + std::to_string(chunk) + " has no shard " + std::to_string(shard));
  }
  ShardLayout layout;
  layout.chunk = chunk;
  layout.shard = shard;
  layout.path = ShardPath(chunk, shard);
  layout.token_bytes = static_cast<std::int64_t>(convention.layers.size()) * convention.hidden_size * 2;
  DRAFTMILL_RETURN_IF_ERROR(PlaceBatches(cu_seqlens, plan, plan.shards[static_cast<std::size_t>(shard)], layout));
  DRAFTMILL_ASSIGN_OR_RETURN(
      layout.header,
      safetensors::BuildHeader(
          ShardTensors(layout.samples(), layout.tokens(), static_cast<std::int64_t>(layout.batches.size()), convention),
          ShardMetadata(chunk, shard, plan.plan_hash, convention), kStatesAlignment));
  for (ShardBatch& batch : layout.batches) {
    batch.offset = layout.states_offset() + batch.first_token * layout.token_bytes;
    batch.bytes = batch.tokens * layout.token_bytes;
  }
  return layout;
}

std::string BuildShardTail(const ShardLayout& layout, const TokenizedChunk& chunk,
                           const std::vector<std::uint8_t>& sample_state, const std::vector<std::uint64_t>& checksum) {
  std::string tail(static_cast<std::size_t>(layout.tail_bytes()), '\0');
  TensorBytes<std::int64_t>(layout, "cu_seqlens", tail).Append(layout.cu_seqlens);
  TensorBytes<std::uint64_t>(layout, "checksum", tail).Append(checksum);
  TensorBytes<std::int64_t>(layout, "batch_offsets", tail).Append(layout.batch_offsets);
  TensorBytes<std::uint8_t>(layout, "sample_state", tail).Append(sample_state);
  TensorBytes<std::int64_t> sample_id(layout, "sample_id", tail);
  TensorBytes<std::uint64_t> token_hash(layout, "token_hash", tail);
  TensorBytes<std::int32_t> variant(layout, "variant", tail);
  TensorBytes<Hash128> content_hash(layout, "content_hash", tail);
  TensorBytes<std::int32_t> input_ids(layout, "input_ids", tail);
  TensorBytes<std::uint8_t> loss_mask(layout, "loss_mask", tail);
  for (std::size_t i = 0; i < layout.chunk_samples.size(); ++i) {
    const auto sample = static_cast<std::size_t>(layout.chunk_samples[i]);
    const auto begin = static_cast<std::size_t>(chunk.cu_seqlens[sample]);
    const auto tokens = static_cast<std::size_t>(chunk.cu_seqlens[sample + 1]) - begin;
    sample_id.Append(chunk.sample_id[sample]);
    token_hash.Append(chunk.token_hash[sample]);
    variant.Append(chunk.variant[sample]);
    content_hash.Append(chunk.content_hash[sample]);
    input_ids.Append(std::span(chunk.input_ids).subspan(begin, tokens));
    if (sample_state[i] == 0) {
      loss_mask.Append(std::span(chunk.loss_mask).subspan(begin, tokens));
    } else {
      loss_mask.Skip(tokens);
    }
  }
  return tail;
}

Hash128 ShardFrameDigest(std::string_view header, std::string_view tail) {
  StreamingHash hash;
  hash.Update(header);
  hash.Update(tail);
  return hash.Digest128();
}

Hash128 ShardDigest(const Hash128& frame, std::span<const Hash128> batches) {
  StreamingHash hash;
  hash.Update(std::as_bytes(std::span(frame.bytes)));
  for (const Hash128& batch : batches) hash.Update(std::as_bytes(std::span(batch.bytes)));
  return hash.Digest128();
}

void ShardBatchHasher::BeginSample(std::span<const std::int32_t> input_ids, std::span<const std::uint8_t> loss_mask) {
  sample_ = StreamingHash();
  sample_.Update(std::as_bytes(input_ids));
  sample_.Update(std::as_bytes(loss_mask));
  sample_is_zero_ = true;
}

void ShardBatchHasher::AddStates(std::span<const std::byte> states) {
  while (!states.empty()) {
    const std::span<const std::byte> piece = states.first(std::min(states.size(), kHashedPieceBytes));
    sample_.Update(piece);
    batch_.Update(piece);
    sample_is_zero_ =
        sample_is_zero_ && std::all_of(piece.begin(), piece.end(), [](std::byte b) { return b == std::byte{0}; });
    states = states.subspan(piece.size());
  }
}

std::uint64_t ShardBatchHasher::EndSample() { return sample_.Digest64(); }

Hash128 ShardBatchHasher::Finish(std::span<const std::uint8_t> sample_state) {
  batch_.Update(std::as_bytes(sample_state));
  return batch_.Digest128();
}

Result<ShardBatchHashes> HashShardBatch(ReadableFile& file, const std::string& path, const ShardBatch& batch,
                                        std::int64_t token_bytes, const ShardTokens& tokens,
                                        std::span<const std::uint8_t> sample_state) {
  std::vector<std::byte> buffer(std::min(kPieceBytes, static_cast<std::size_t>(batch.bytes)));
  ShardBatchHasher hasher;
  ShardBatchHashes hashes;
  std::int64_t offset = batch.offset;
  for (std::int64_t sample = batch.first_sample; sample < batch.first_sample + batch.samples; ++sample) {
    const auto begin = static_cast<std::size_t>(tokens.cu_seqlens[static_cast<std::size_t>(sample)]);
    const auto count = static_cast<std::size_t>(tokens.cu_seqlens[static_cast<std::size_t>(sample) + 1]) - begin;
    hasher.BeginSample(tokens.input_ids.subspan(begin, count), tokens.loss_mask.subspan(begin, count));
    auto left = static_cast<std::int64_t>(count) * token_bytes;
    while (left > 0) {
      const auto piece = std::min(static_cast<std::size_t>(left), buffer.size());
      Result<std::size_t> read = file.ReadAt(offset, std::span(buffer).first(piece));
      if (!read.ok()) return read.status().WithContext(path);
      if (*read < piece) return Corrupt(path + ": the file ends within batch " + std::to_string(batch.batch));
      hasher.AddStates(std::span<const std::byte>(buffer).first(piece));
      offset += static_cast<std::int64_t>(piece);
      left -= static_cast<std::int64_t>(piece);
    }
    hashes.checksums.push_back(hasher.EndSample());
    hashes.zero.push_back(hasher.sample_was_zero());
  }
  hashes.digest = hasher.Finish(sample_state);
  return hashes;
}

}  // namespace draftmill
