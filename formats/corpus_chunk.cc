#include "formats/corpus_chunk.h"

#include <cstdio>
#include <vector>

#include "formats/tensor_file.h"

namespace draftmill {
namespace {

using safetensors::Dtype;

constexpr FileFormat kFormat{.name = "draftmill.corpus_chunk", .version = 1};

static_assert(sizeof(Hash128) == 16, "content hashes are written in place");

std::string SampleName(const TokenizedChunk& chunk, std::int64_t sample) {
  const auto i = static_cast<std::size_t>(sample);
  return "sample " + std::to_string(chunk.sample_id[i]) + "/" + std::to_string(chunk.variant[i]);
}

Status CheckSample(const TokenizedChunk& chunk, std::int64_t sample) {
  const auto i = static_cast<std::size_t>(sample);
  const std::int64_t begin = chunk.cu_seqlens[i];
  const std::int64_t end = chunk.cu_seqlens[i + 1];
  if (end <= begin || end > chunk.tokens()) return Corrupt(SampleName(chunk, sample) + " has an impossible length");
  if (i > 0 &&
      SampleKey{chunk.sample_id[i - 1], chunk.variant[i - 1]} >= SampleKey{chunk.sample_id[i], chunk.variant[i]}) {
    return Corrupt(SampleName(chunk, sample) + " stands out of order");
  }
  if (chunk.sample_id[i] < 0 || chunk.variant[i] < 0) return Corrupt(SampleName(chunk, sample) + " has a negative key");
  for (auto token = static_cast<std::size_t>(begin); token < static_cast<std::size_t>(end); ++token) {
    if (chunk.input_ids[token] < 0 || chunk.loss_mask[token] > 1) {
      return Corrupt(SampleName(chunk, sample) + " has an impossible id or mask at token " +
                     std::to_string(token - static_cast<std::size_t>(begin)));
    }
  }
  const std::uint64_t hash = TokenHash(&chunk.input_ids[static_cast<std::size_t>(begin)],
                                       &chunk.loss_mask[static_cast<std::size_t>(begin)], end - begin);
  if (hash != chunk.token_hash[i]) {
    return Corrupt(SampleName(chunk, sample) + " has token hash " + ToHex(chunk.token_hash[i]) +
                   ", its ids and mask give " + ToHex(hash));
  }
  return OkStatus();
}

Result<std::int64_t> FirstExtent(const TensorFile& file, std::string_view name) {
  const safetensors::TensorInfo* tensor = file.header().Find(name);
  if (tensor == nullptr || tensor->shape.size() != 1) {
    return Corrupt(file.path() + ": it lacks a list named '" + std::string(name) + "'");
  }
  return tensor->shape[0];
}

Result<TokenizedChunk> ReadTensors(TensorFile& file, std::int32_t number) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t samples, FirstExtent(file, "sample_id"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t tokens, FirstExtent(file, "input_ids"));
  TokenizedChunk chunk;
  chunk.chunk = number;
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.cu_seqlens, file.Read<std::int64_t>("cu_seqlens", Dtype::kI64, {samples + 1}));
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.sample_id, file.Read<std::int64_t>("sample_id", Dtype::kI64, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.token_hash, file.Read<std::uint64_t>("token_hash", Dtype::kU64, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.input_ids, file.Read<std::int32_t>("input_ids", Dtype::kI32, {tokens}));
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.variant, file.Read<std::int32_t>("variant", Dtype::kI32, {samples}));
  DRAFTMILL_ASSIGN_OR_RETURN(chunk.loss_mask, file.Read<std::uint8_t>("loss_mask", Dtype::kU8, {tokens}));
  DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::TensorInfo* hashes,
                             file.Require("content_hash", Dtype::kU8, {samples, 16}));
  chunk.content_hash.resize(static_cast<std::size_t>(samples));
  DRAFTMILL_RETURN_IF_ERROR(safetensors::ReadTensorBytes(
      file.file(), file.path(), *hashes, std::as_writable_bytes(std::span<Hash128>(chunk.content_hash))));
  return chunk;
}

Result<TensorFile> OpenChunk(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk) {
  const std::string path = JoinPath(work_folder, CorpusChunkPath(chunk));
  DRAFTMILL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(file_system, path, kFormat));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t number, file.RequireNumber("chunk"));
  if (number != chunk) return Corrupt(path + ": its metadata says chunk " + std::to_string(number));
  return file;
}

}  // namespace

std::string CorpusChunkPath(std::int32_t chunk) {
  char name[48];
  std::snprintf(name, sizeof name, "corpus/chunk-%06d.safetensors", chunk);
  return name;
}

Status CheckTokenizedChunk(const TokenizedChunk& chunk) {
  const auto samples = static_cast<std::size_t>(chunk.samples());
  if (chunk.cu_seqlens.size() != samples + 1 || chunk.variant.size() != samples ||
      chunk.content_hash.size() != samples || chunk.token_hash.size() != samples ||
      chunk.loss_mask.size() != chunk.input_ids.size()) {
    return Corrupt("lists of different lengths");
  }
  if (chunk.cu_seqlens.front() != 0 || chunk.cu_seqlens.back() != chunk.tokens()) {
    return Corrupt("cu_seqlens does not run from 0 to the number of tokens");
  }
  for (std::int64_t sample = 0; sample < chunk.samples(); ++sample) {
    DRAFTMILL_RETURN_IF_ERROR(CheckSample(chunk, sample));
  }
  return OkStatus();
}

Result<PublishedFile> WriteCorpusChunk(FileSystem& file_system, const std::string& work_folder,
                                       const TokenizedChunk& chunk, const std::string& fingerprint) {
  const std::string path = CorpusChunkPath(chunk.chunk);
  // What does not hold here is a bug of the tokenize stage, and must not become a file that reads as damaged.
  if (Status status = CheckTokenizedChunk(chunk); !status.ok()) {
    return Internal(path + ": not written: " + status.message());
  }
  const std::int64_t samples = chunk.samples();
  const std::int64_t tokens = chunk.tokens();
  safetensors::Metadata metadata = FormatMetadata(kFormat);
  metadata.emplace_back("chunk", std::to_string(chunk.chunk));
  metadata.emplace_back("tokenize_fingerprint", fingerprint);
  DRAFTMILL_RETURN_IF_ERROR(file_system.MakeFolder(JoinPath(work_folder, "corpus")));
  return PublishTensorFile(file_system, work_folder, path,
                           {{{"cu_seqlens", Dtype::kI64, {samples + 1}}, BytesOf(chunk.cu_seqlens)},
                            {{"sample_id", Dtype::kI64, {samples}}, BytesOf(chunk.sample_id)},
                            {{"token_hash", Dtype::kU64, {samples}}, BytesOf(chunk.token_hash)},
                            {{"input_ids", Dtype::kI32, {tokens}}, BytesOf(chunk.input_ids)},
                            {{"variant", Dtype::kI32, {samples}}, BytesOf(chunk.variant)},
                            {{"loss_mask", Dtype::kU8, {tokens}}, BytesOf(chunk.loss_mask)},
                            {{"content_hash", Dtype::kU8, {samples, 16}}, BytesOf(chunk.content_hash)}},
                           metadata);
}

Result<CorpusChunkSizes> ReadCorpusChunkSizes(FileSystem& file_system, const std::string& work_folder,
                                              std::int32_t chunk) {
  DRAFTMILL_ASSIGN_OR_RETURN(const TensorFile file, OpenChunk(file_system, work_folder, chunk));
  CorpusChunkSizes sizes;
  DRAFTMILL_ASSIGN_OR_RETURN(sizes.samples, FirstExtent(file, "sample_id"));
  DRAFTMILL_ASSIGN_OR_RETURN(sizes.tokens, FirstExtent(file, "input_ids"));
  return sizes;
}

Result<CorpusChunk> ReadCorpusChunk(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk) {
  DRAFTMILL_ASSIGN_OR_RETURN(TensorFile file, OpenChunk(file_system, work_folder, chunk));
  CorpusChunk corpus;
  DRAFTMILL_ASSIGN_OR_RETURN(corpus.fingerprint, file.RequireMetadata("tokenize_fingerprint"));
  DRAFTMILL_ASSIGN_OR_RETURN(corpus.chunk, ReadTensors(file, chunk));
  DRAFTMILL_RETURN_IF_ERROR(CheckTokenizedChunk(corpus.chunk).WithContext(file.path()));
  return corpus;
}

}  // namespace draftmill
