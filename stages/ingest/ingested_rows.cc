#include "stages/ingest/ingested_rows.h"

#include <fmt/format.h>
#include <zstd.h>

#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/json.h"

namespace draftmill {
namespace {

/// A part of the format: another level gives other bytes.
constexpr int kZstdLevel = 3;
/// No chunk that ingest cuts comes near: one row of the largest allowed size makes a chunk of its own.
constexpr std::uint64_t kMaxChunkText = std::uint64_t{4} << 30;

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

Result<std::string> Packed(std::string_view text) {
  const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  if (context == nullptr) return OutOfMemory("packing an ingested chunk");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress2(context.get(), packed.data(), packed.size(), text.data(), text.size());
  if (ZSTD_isError(size) != 0) return OutOfMemory(std::string("packing an ingested chunk: ") + ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

Result<std::string> Unpacked(std::string_view packed) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kMaxChunkText) {
    return Corrupt("it is no zstd frame of a known size");
  }
  std::string text(size, '\0');
  const std::size_t got = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0) return Corrupt(std::string("it does not unpack: ") + ZSTD_getErrorName(got));
  if (got != size) return Corrupt("it does not unpack to its stated size");
  return text;
}

/// A number or a place: from 0 to `most`.
Result<std::int64_t> IntegerField(const json::Value& line, std::string_view key,
                                  std::int64_t most = std::numeric_limits<std::int64_t>::max() - 1) {
  const json::Value* value = line.Find(key);
  if (value == nullptr || !value->is_integer()) return Corrupt("a row without " + std::string(key));
  if (value->as_integer() < 0 || value->as_integer() > most)
    return Corrupt("a row whose " + std::string(key) + " cannot be");
  return value->as_integer();
}

Result<IngestedRow> ReadRow(std::string_view text) {
  Result<json::Value> line = json::Parse(text);
  if (!line.ok()) return Corrupt("a row is no JSON: " + line.status().message());
  IngestedRow row;
  DRAFTMILL_ASSIGN_OR_RETURN(row.sample_id, IntegerField(*line, "sample_id"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t source,
                             IntegerField(*line, "source", std::numeric_limits<std::int32_t>::max()));
  DRAFTMILL_ASSIGN_OR_RETURN(row.place.row, IntegerField(*line, "row"));
  DRAFTMILL_ASSIGN_OR_RETURN(row.place.line, IntegerField(*line, "line"));
  DRAFTMILL_ASSIGN_OR_RETURN(row.place.byte_offset, IntegerField(*line, "byte_offset"));
  row.place.source = static_cast<std::int32_t>(source);
  const json::Value* hash = line->Find("content_hash");
  if (hash == nullptr || !hash->is_string()) return Corrupt("a row without content_hash");
  DRAFTMILL_ASSIGN_OR_RETURN(row.content_hash, Hash128FromHex(hash->as_string()));
  json::Value* conversation = line->Find("conversation");
  if (conversation == nullptr || !conversation->is_object()) return Corrupt("a row without conversation");
  row.conversation = std::move(*conversation);
  return row;
}

Result<IngestedChunk> ReadRows(std::string_view packed, std::int32_t chunk) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, Unpacked(packed));
  IngestedChunk result;
  result.chunk = chunk;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) return Corrupt("its last line is cut");
    DRAFTMILL_ASSIGN_OR_RETURN(IngestedRow row, ReadRow(std::string_view(text).substr(at, end - at)));
    if (!result.rows.empty() && row.sample_id != result.rows.back().sample_id + 1) {
      return Corrupt("sample ids are not consecutive at " + std::to_string(row.sample_id));
    }
    result.rows.push_back(std::move(row));
    at = end + 1;
  }
  return result;
}

}  // namespace

std::string IngestedFolder(std::string_view work_folder) { return JoinPath(work_folder, "ingested"); }

std::string IngestedChunkPath(std::string_view work_folder, std::int32_t chunk) {
  return JoinPath(IngestedFolder(work_folder), fmt::format("chunk-{:06}.jsonl.zst", chunk));
}

void IngestedChunkText::Add(const Hash128& content_hash, const RowPlace& place, std::string_view conversation) {
  fmt::format_to(
      std::back_inserter(text_),
      R"({{"sample_id":{},"content_hash":"{}","source":{},"row":{},"line":{},"byte_offset":{},"conversation":)",
      first_sample_ + rows_, ToHex(content_hash), place.source, place.row, place.line, place.byte_offset);
  text_.append(conversation).append("}\n");
  ++rows_;
}

Result<IngestedChunkFacts> IngestedChunkText::WriteFile(FileSystem& file_system, const std::string& work_folder) const {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string packed, Packed(text_));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                             file_system.OpenForWriting(IngestedChunkPath(work_folder, chunk_), OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span<const char>(packed))));
  DRAFTMILL_RETURN_IF_ERROR(file->Close());
  return IngestedChunkFacts{
      chunk_, first_sample_, rows_, static_cast<std::int64_t>(packed.size()), HashBytes128(packed), epoch_};
}

Result<std::int64_t> IngestedChunkText::PackedBytes() const {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string packed, Packed(text_));
  return static_cast<std::int64_t>(packed.size());
}

Status SyncIngestedChunks(FileSystem& file_system, const std::string& work_folder, std::int32_t chunks) {
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
    DRAFTMILL_ASSIGN_OR_RETURN(
        const std::unique_ptr<WritableFile> file,
        file_system.OpenForWriting(IngestedChunkPath(work_folder, chunk), OpenMode::kOpenExisting));
    DRAFTMILL_RETURN_IF_ERROR(file->Sync());
    DRAFTMILL_RETURN_IF_ERROR(file->Close());
  }
  return file_system.SyncFolder(IngestedFolder(work_folder));
}

Result<IngestedChunk> ReadIngestedChunk(FileSystem& file_system, const std::string& work_folder, std::int32_t chunk,
                                        const std::optional<Hash128>& digest) {
  const std::string path = IngestedChunkPath(work_folder, chunk);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string packed, file_system.ReadAll(path, std::int64_t{1} << 32));
  if (digest && HashBytes128(packed) != *digest) {
    return Corrupt(path +
                   ": its digest is not the one that was recorded. Nothing else is harmed; `draftmill verify --repair` "
                   "ingests it again from the sources");
  }
  return ReadRows(packed, chunk).WithContext(path);
}

}  // namespace draftmill
