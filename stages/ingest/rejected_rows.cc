#include "stages/ingest/rejected_rows.h"

#include <zstd.h>

#include <span>
#include <utility>

#include "base/utf8.h"
#include "stages/ingest/ingested_rows.h"
#include "stages/ingest/row_reader.h"

namespace draftmill {
namespace {

constexpr int kZstdLevel = 3;
constexpr std::size_t kMaxRawBytes = std::size_t{64} << 10;
/// A line holds one row of at most kMaxRawBytes, escaped, and a message.
constexpr std::int64_t kMaxLineBytes = std::int64_t{1} << 20;

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

struct RejectedRowsWriter::State {
  FileSystem& file_system;
  std::string path;
  std::unique_ptr<WritableFile> file;
  std::unique_ptr<ZSTD_CCtx, FreeCompressor> context;
  std::string packed;
  std::int64_t bytes = 0;
};

std::string RejectedRowsPath(std::string_view work_folder) {
  return JoinPath(IngestedFolder(work_folder), "rejected.jsonl.zst");
}

RejectedRowsWriter::RejectedRowsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
RejectedRowsWriter::~RejectedRowsWriter() = default;
RejectedRowsWriter::RejectedRowsWriter(RejectedRowsWriter&&) noexcept = default;
RejectedRowsWriter& RejectedRowsWriter::operator=(RejectedRowsWriter&&) noexcept = default;

Result<RejectedRowsWriter> RejectedRowsWriter::Create(FileSystem& file_system, const std::string& work_folder) {
  const std::string path = RejectedRowsPath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                             file_system.OpenForWriting(path + ".partial", OpenMode::kCreate));
  std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  if (context == nullptr) return OutOfMemory("packing rejected rows");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  auto state = std::unique_ptr<State>(
      new State{file_system, path, std::move(file), std::move(context), std::string(ZSTD_CStreamOutSize(), '\0'), 0});
  return RejectedRowsWriter(std::move(state));
}

Status RejectedRowsWriter::Pack(std::string_view text, bool is_last) {
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  std::size_t left = 0;
  do {
    ZSTD_outBuffer output{state_->packed.data(), state_->packed.size(), 0};
    left = ZSTD_compressStream2(state_->context.get(), &output, &input, is_last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left) != 0) return OutOfMemory(std::string("packing rejected rows: ") + ZSTD_getErrorName(left));
    const std::string_view packed = std::string_view(state_->packed).substr(0, output.pos);
    DRAFTMILL_RETURN_IF_ERROR(state_->file->WriteAt(state_->bytes, std::as_bytes(std::span<const char>(packed))));
    state_->bytes += static_cast<std::int64_t>(output.pos);
  } while (is_last ? left > 0 : input.pos < input.size);
  return OkStatus();
}

Status RejectedRowsWriter::Add(const Failure& failure, std::string_view file, std::string_view raw) {
  json::Object line;
  line.emplace_back("reason", failure.reason);
  line.emplace_back("message", failure.message);
  line.emplace_back("file", IsValidUtf8(file) ? file : std::string_view());
  line.emplace_back("source", failure.place.source);
  line.emplace_back("row", failure.place.row);
  line.emplace_back("line", failure.place.line);
  line.emplace_back("byte_offset", failure.place.byte_offset);
  const bool shows_raw = !raw.empty() && raw.size() <= kMaxRawBytes && IsValidUtf8(raw);
  if (shows_raw) line.emplace_back("raw", raw);
  return Pack(json::Write(json::Value(std::move(line))) + "\n", false);
}

Status RejectedRowsWriter::Finish() {
  DRAFTMILL_RETURN_IF_ERROR(Pack({}, true));
  DRAFTMILL_RETURN_IF_ERROR(state_->file->Sync());
  DRAFTMILL_RETURN_IF_ERROR(state_->file->Close());
  DRAFTMILL_RETURN_IF_ERROR(state_->file_system.Rename(state_->path + ".partial", state_->path));
  return state_->file_system.SyncFolder(ParentPath(state_->path));
}

Status ForEachRejectedRow(FileSystem& file_system, const std::string& work_folder,
                          const std::function<Status(const json::Value& row)>& visit) {
  const std::string path = RejectedRowsPath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(file_system, path));
  RowReader reader(std::move(stream), FileLayout::kLines, kMaxLineBytes);
  RawRow row;
  while (true) {
    DRAFTMILL_ASSIGN_OR_RETURN(const bool more, reader.Next(row));
    if (!more) return OkStatus();
    const Result<json::Value> line = json::Parse(row.text);
    if (!line.ok()) return Corrupt(path + ": " + line.status().message());
    DRAFTMILL_RETURN_IF_ERROR(visit(*line));
  }
}

}  // namespace draftmill
