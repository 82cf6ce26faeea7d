#include "stages/write/shard_writer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/start_threads.h"

namespace draftmill {
namespace {

/// Batches from here on are hashed while the disk takes them.
constexpr std::int64_t kLeastOverlappedBytes = std::int64_t{4} << 20;

std::string SampleName(const SampleKey& key) {
  return "sample " + std::to_string(key.sample_id) + "/" + std::to_string(key.variant);
}

SampleKey KeyOf(const TokenizedChunk& chunk, std::int64_t sample) {
  return {chunk.sample_id[static_cast<std::size_t>(sample)], chunk.variant[static_cast<std::size_t>(sample)]};
}

// Ids and mask of one sample as they stand in the shard.
struct SampleTokens {
  std::span<const std::int32_t> input_ids;
  std::span<const std::uint8_t> loss_mask;
};

SampleTokens TokensOf(const TokenizedChunk& chunk, std::int64_t sample) {
  const auto begin = static_cast<std::size_t>(chunk.cu_seqlens[static_cast<std::size_t>(sample)]);
  const auto count = static_cast<std::size_t>(chunk.cu_seqlens[static_cast<std::size_t>(sample) + 1]) - begin;
  return {std::span(chunk.input_ids).subspan(begin, count), std::span(chunk.loss_mask).subspan(begin, count)};
}

// The ids and masks of a whole shard in stored order, as they stand in a file with these sample states.
struct StoredTokens {
  std::vector<std::int32_t> input_ids;
  std::vector<std::uint8_t> loss_mask;

  StoredTokens(const ShardLayout& layout, const TokenizedChunk& chunk, std::span<const std::uint8_t> sample_state) {
    for (std::size_t i = 0; i < layout.chunk_samples.size(); ++i) {
      const SampleTokens tokens = TokensOf(chunk, layout.chunk_samples[i]);
      input_ids.insert(input_ids.end(), tokens.input_ids.begin(), tokens.input_ids.end());
      if (sample_state[i] == 0) loss_mask.insert(loss_mask.end(), tokens.loss_mask.begin(), tokens.loss_mask.end());
      loss_mask.resize(input_ids.size());
    }
  }
  ShardTokens View(const ShardLayout& layout) const { return {input_ids, loss_mask, layout.cu_seqlens}; }
};

// What reading back one batch gives.
Result<ShardBatchHashes> HashStoredBatch(ReadableFile& file, const std::string& path, const ShardLayout& layout,
                                         const ShardBatch& batch, const StoredTokens& tokens,
                                         std::span<const std::uint8_t> sample_state) {
  return HashShardBatch(
      file, path, batch, layout.token_bytes, tokens.View(layout),
      sample_state.subspan(static_cast<std::size_t>(batch.first_sample), static_cast<std::size_t>(batch.samples)));
}

// Exactly `bytes` at `offset`, or kCorrupt.
Result<std::string> ReadExactly(ReadableFile& file, const std::string& path, std::int64_t offset, std::int64_t bytes) {
  std::string content(static_cast<std::size_t>(bytes), '\0');
  Result<std::size_t> read = file.ReadAt(offset, std::as_writable_bytes(std::span(content)));
  if (!read.ok()) return read.status().WithContext(path);
  if (*read < content.size()) return Corrupt(path + ": the file is too short");
  return content;
}

// Whether the file has the size and the header of the layout.
Result<bool> HasLayout(ReadableFile& file, const std::string& path, const ShardLayout& layout) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t size, file.Size());
  if (size != layout.file_bytes()) return false;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string header, ReadExactly(file, path, 0, layout.states_offset()));
  return header == layout.header.bytes;
}

Result<ShardLayout> LayoutOf(const ShardSource& source) {
  return LayOutShard(source.chunk->chunk, source.chunk->cu_seqlens, *source.plan, source.shard, *source.convention);
}

PublishedShard Describe(const ShardLayout& layout, const TokenizedChunk& chunk, const std::string& tail,
                        std::span<const std::uint8_t> sample_state, std::vector<WrittenBatch> batches) {
  PublishedShard shard;
  std::vector<Hash128> digests;
  for (const WrittenBatch& batch : batches) digests.push_back(batch.digest);
  shard.file = {.path = layout.path,
                .bytes = layout.file_bytes(),
                .digest = ShardDigest(ShardFrameDigest(layout.header.bytes, tail), digests)};
  shard.samples = layout.samples();
  shard.tokens = layout.tokens();
  shard.batches = std::move(batches);
  for (std::size_t i = 0; i < sample_state.size(); ++i) {
    if (sample_state[i] != 0) shard.quarantined.push_back(KeyOf(chunk, layout.chunk_samples[i]));
  }
  return shard;
}

}  // namespace

ShardWriter::ShardWriter(FileSystem& file_system, std::string path, const ShardSource& source, ShardLayout layout)
    : file_system_(file_system),
      path_(std::move(path)),
      source_(source),
      layout_(std::move(layout)),
      slots_(layout_.batches.size()),
      sample_state_(static_cast<std::size_t>(layout_.samples())),
      checksum_(static_cast<std::size_t>(layout_.samples())) {}

Result<std::unique_ptr<ShardWriter>> ShardWriter::Open(FileSystem& file_system, const std::string& work_folder,
                                                       const ShardSource& source,
                                                       std::span<const WrittenBatch> recorded) {
  DRAFTMILL_ASSIGN_OR_RETURN(ShardLayout layout, LayoutOf(source));
  std::string path = JoinPath(work_folder, layout.path);
  std::unique_ptr<ShardWriter> writer(new ShardWriter(file_system, std::move(path), source, std::move(layout)));
  bool resumed = false;
  if (!recorded.empty()) {
    DRAFTMILL_ASSIGN_OR_RETURN(resumed, writer->Resume(recorded));
  }
  if (!resumed) DRAFTMILL_RETURN_IF_ERROR(writer->Create());
  return writer;
}

Status ShardWriter::Create() {
  const std::string folder = ParentPath(path_);
  DRAFTMILL_RETURN_IF_ERROR(file_system_.MakeFolder(folder));
  DRAFTMILL_ASSIGN_OR_RETURN(file_, file_system_.OpenForWriting(PartialPath(path_), OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file_->Allocate(layout_.file_bytes()));
  DRAFTMILL_RETURN_IF_ERROR(file_->Truncate(layout_.file_bytes()));
  const std::string tail = BuildShardTail(layout_, *source_.chunk, sample_state_, checksum_);
  DRAFTMILL_RETURN_IF_ERROR(file_->WriteAt(0, std::as_bytes(std::span(layout_.header.bytes))));
  DRAFTMILL_RETURN_IF_ERROR(file_->WriteAt(layout_.tail_offset(), std::as_bytes(std::span(tail))));
  DRAFTMILL_RETURN_IF_ERROR(file_->Sync());
  return file_system_.SyncFolder(folder);
}

Result<bool> ShardWriter::Resume(std::span<const WrittenBatch> recorded) {
  const std::string partial_path = PartialPath(path_);
  Result<std::unique_ptr<ReadableFile>> file = file_system_.OpenForReading(partial_path);
  if (file.status().code() == StatusCode::kNotFound) return false;
  if (!file.ok()) return file.status();
  DRAFTMILL_ASSIGN_OR_RETURN(const bool same, HasLayout(**file, partial_path, layout_));
  if (!same) return false;
  // In a work folder that was copied with `cp -l` another one has this file too, perhaps as a published one.
  std::error_code no_links_known;
  if (std::filesystem::hard_link_count(partial_path, no_links_known) > 1 && !no_links_known) return false;
  DRAFTMILL_ASSIGN_OR_RETURN(
      const std::string states,
      ReadExactly(**file, partial_path, layout_.TensorOffset("sample_state"), layout_.samples()));
  std::copy(states.begin(), states.end(), sample_state_.begin());
  const StoredTokens tokens(layout_, *source_.chunk, sample_state_);
  for (const WrittenBatch& row : recorded) {
    const std::int64_t index = row.batch - layout_.batches.front().batch;
    if (index < 0 || index >= static_cast<std::int64_t>(slots_.size())) continue;
    const ShardBatch& batch = layout_.batches[static_cast<std::size_t>(index)];
    DRAFTMILL_ASSIGN_OR_RETURN(const ShardBatchHashes hashes,
                               HashStoredBatch(**file, partial_path, layout_, batch, tokens, sample_state_));
    if (hashes.digest != row.digest) continue;
    slots_[static_cast<std::size_t>(index)] = {.written = true, .digest = hashes.digest};
    std::copy(hashes.checksums.begin(), hashes.checksums.end(), checksum_.begin() + batch.first_sample);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].written) continue;
    const ShardBatch& batch = layout_.batches[i];
    std::fill_n(sample_state_.begin() + batch.first_sample, batch.samples, std::uint8_t{0});
  }
  DRAFTMILL_ASSIGN_OR_RETURN(file_, file_system_.OpenForWriting(partial_path, OpenMode::kOpenExisting));
  return true;
}

std::vector<std::int64_t> ShardWriter::missing() const {
  std::vector<std::int64_t> batches;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].written) batches.push_back(layout_.batches[i].batch);
  }
  return batches;
}

std::string ShardWriter::Context(std::int64_t batch) const { return layout_.path + ": batch " + std::to_string(batch); }

Status ShardWriter::CheckIdentity(const BatchStates& states, const ShardBatch& batch) const {
  const auto samples = static_cast<std::size_t>(batch.samples);
  if (states.chunk != source_.chunk->chunk) {
    return Corrupt("it says it is of chunk " + std::to_string(states.chunk));
  }
  if (states.keys.size() != samples || states.token_hashes.size() != samples || states.sample_state.size() != samples ||
      static_cast<std::int64_t>(states.hidden_states.size()) * 2 != batch.bytes) {
    return Corrupt("it holds " + std::to_string(states.keys.size()) + " samples and " +
                   std::to_string(states.hidden_states.size() * 2) + " bytes of states, planned are " +
                   std::to_string(batch.samples) + " and " + std::to_string(batch.bytes));
  }
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int64_t sample = layout_.chunk_samples[static_cast<std::size_t>(batch.first_sample) + i];
    const SampleKey planned = KeyOf(*source_.chunk, sample);
    if (states.keys[i] != planned) {
      return Corrupt("place " + std::to_string(i) + " holds " + SampleName(states.keys[i]) + ", planned is " +
                     SampleName(planned));
    }
    const std::uint64_t hash = source_.chunk->token_hash[static_cast<std::size_t>(sample)];
    if (states.token_hashes[i] != hash) {
      return Corrupt(SampleName(planned) + " was computed from other tokens: token hash " +
                     ToHex(states.token_hashes[i]) + ", planned is " + ToHex(hash));
    }
  }
  return OkStatus();
}

Status ShardWriter::HashStates(const BatchStates& states, const ShardBatch& batch, Slot& slot) {
  ShardBatchHasher hasher;
  std::span<const std::byte> left = std::as_bytes(std::span(states.hidden_states));
  for (std::int64_t i = 0; i < batch.samples; ++i) {
    const std::int64_t stored = batch.first_sample + i;
    const std::int64_t sample = layout_.chunk_samples[static_cast<std::size_t>(stored)];
    const SampleTokens tokens = TokensOf(*source_.chunk, sample);
    const bool good = states.sample_state[static_cast<std::size_t>(i)] == 0;
    const std::vector<std::uint8_t> no_mask(good ? 0 : tokens.loss_mask.size());
    const auto bytes = tokens.input_ids.size() * static_cast<std::size_t>(layout_.token_bytes);
    hasher.BeginSample(tokens.input_ids, good ? tokens.loss_mask : std::span<const std::uint8_t>(no_mask));
    hasher.AddStates(left.first(bytes));
    left = left.subspan(bytes);
    checksum_[static_cast<std::size_t>(stored)] = hasher.EndSample();
    if (!good && !hasher.sample_was_zero()) {
      return Internal(SampleName(KeyOf(*source_.chunk, sample)) + " is quarantined, but its states are not zero");
    }
  }
  slot.digest = hasher.Finish(states.sample_state);
  return OkStatus();
}

Status ShardWriter::HashAndWrite(const BatchStates& states, const ShardBatch& batch, Slot& slot) {
  Status hashed;
  const auto hash = [&] { hashed = HashStates(states, batch, slot).WithContext(Context(batch.batch)); };
  std::thread hasher;
  if (batch.bytes >= kLeastOverlappedBytes) {
    // Where the machine gives no more threads: one after the other, then.
    Result<std::thread> thread = StartThread(hash);
    if (thread.ok()) hasher = std::move(thread).value();
  }
  if (!hasher.joinable()) {
    hash();
    DRAFTMILL_RETURN_IF_ERROR(hashed);
  }
  const Status written = file_->WriteAt(batch.offset, std::as_bytes(std::span(states.hidden_states)));
  if (hasher.joinable()) hasher.join();
  DRAFTMILL_RETURN_IF_ERROR(hashed);
  return written;
}

Result<WrittenBatch> ShardWriter::WriteBatch(const BatchStates& states) {
  const std::int64_t index = states.batch - layout_.batches.front().batch;
  if (index < 0 || index >= static_cast<std::int64_t>(slots_.size())) {
    return Corrupt(Context(states.batch) + ": the shard has no such batch");
  }
  if (sync_failed_) return IoError(Context(states.batch) + ": an earlier sync of this file failed; open it again");
  const ShardBatch& batch = layout_.batches[static_cast<std::size_t>(index)];
  if (Status status = CheckIdentity(states, batch); !status.ok()) {
    return Status(status.code(), Context(batch.batch) + ": " + status.message() +
                                     "; nothing of it was written, the batch has to be computed again");
  }
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  slot.written = false;
  DRAFTMILL_RETURN_IF_ERROR(HashAndWrite(states, batch, slot));
  DRAFTMILL_RETURN_IF_ERROR(file_->WriteAt(layout_.TensorOffset("sample_state") + batch.first_sample,
                                           std::as_bytes(std::span(states.sample_state))));
  if (Status status = file_->Sync(); !status.ok()) {
    // The kernel may have dropped what it could not write and would report success the next time.
    sync_failed_ = true;
    return status;
  }
  std::copy(states.sample_state.begin(), states.sample_state.end(), sample_state_.begin() + batch.first_sample);
  slot.written = true;
  return WrittenBatch{batch.batch, slot.digest};
}

Result<PublishedShard> ShardWriter::Publish() {
  if (const std::vector<std::int64_t> left = missing(); !left.empty()) {
    return Internal(layout_.path + ": " + std::to_string(left.size()) + " batches are missing, the first is " +
                    std::to_string(left.front()));
  }
  if (sync_failed_ || file_ == nullptr) return Internal(layout_.path + ": this writer can no longer publish");
  const std::string tail = BuildShardTail(layout_, *source_.chunk, sample_state_, checksum_);
  DRAFTMILL_RETURN_IF_ERROR(file_->WriteAt(layout_.tail_offset(), std::as_bytes(std::span(tail))));
  const std::unique_ptr<WritableFile> file = std::move(file_);
  DRAFTMILL_RETURN_IF_ERROR(file->Sync());
  DRAFTMILL_RETURN_IF_ERROR(file->Close());
  DRAFTMILL_RETURN_IF_ERROR(file_system_.Rename(PartialPath(path_), path_));
  DRAFTMILL_RETURN_IF_ERROR(file_system_.SyncFolder(ParentPath(path_)));
  std::vector<WrittenBatch> batches;
  for (std::size_t i = 0; i < slots_.size(); ++i) batches.push_back({layout_.batches[i].batch, slots_[i].digest});
  return Describe(layout_, *source_.chunk, tail, sample_state_, std::move(batches));
}

Result<PublishedShard> AdoptShard(FileSystem& file_system, const std::string& work_folder, const ShardSource& source) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ShardLayout layout, LayoutOf(source));
  const std::string path = JoinPath(work_folder, layout.path);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, file_system.OpenForReading(path));
  DRAFTMILL_ASSIGN_OR_RETURN(const bool same, HasLayout(*file, path, layout));
  if (!same) return Corrupt(path + ": not a file of this run: its header differs from the one that belongs here");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string state_bytes,
                             ReadExactly(*file, path, layout.TensorOffset("sample_state"), layout.samples()));
  const std::vector<std::uint8_t> sample_state(state_bytes.begin(), state_bytes.end());
  const StoredTokens tokens(layout, *source.chunk, sample_state);
  std::vector<std::uint64_t> checksum;
  std::vector<WrittenBatch> batches;
  for (const ShardBatch& batch : layout.batches) {
    DRAFTMILL_ASSIGN_OR_RETURN(const ShardBatchHashes hashes,
                               HashStoredBatch(*file, path, layout, batch, tokens, sample_state));
    checksum.insert(checksum.end(), hashes.checksums.begin(), hashes.checksums.end());
    batches.push_back({batch.batch, hashes.digest});
  }
  // The tail holds the checksums, so its equality says that those of the file are those of its bytes.
  const std::string expected = BuildShardTail(layout, *source.chunk, sample_state, checksum);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string tail,
                             ReadExactly(*file, path, layout.tail_offset(), layout.tail_bytes()));
  if (tail != expected) return Corrupt(path + ": ids, mask or checksums differ from what belongs here");
  return Describe(layout, *source.chunk, tail, sample_state, std::move(batches));
}

Status DiscardShard(FileSystem& file_system, const std::string& work_folder, const std::string& file) {
  const std::string path = JoinPath(work_folder, file);
  if (!file_system.Exists(path)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(file_system.Remove(path));
  return file_system.SyncFolder(ParentPath(path));
}

Status ReopenShard(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk, std::int64_t shard) {
  const std::string path = JoinPath(work_folder, ShardPath(chunk, shard));
  if (!file_system.Exists(path)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(file_system.Rename(path, PartialPath(path)));
  return file_system.SyncFolder(ParentPath(path));
}

}  // namespace draftmill
