#include "exports/output_files.h"

#include <span>

namespace draftmill {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

}  // namespace

Status OutputStream::Append(std::string_view bytes) {
  buffer_ += bytes;
  *written_ += static_cast<std::int64_t>(bytes.size());
  return buffer_.size() < kFlushBytes ? OkStatus() : Flush();
}

Status OutputStream::Flush() {
  if (buffer_.empty()) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(file_->WriteAt(offset_, std::as_bytes(std::span(buffer_))));
  offset_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
  return OkStatus();
}

Status OutputStream::Close() {
  DRAFTMILL_RETURN_IF_ERROR(Flush());
  DRAFTMILL_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

Result<std::unique_ptr<OutputStream>> OutputFiles::Open(const std::string& path) {
  const std::string full = JoinPath(folder_, path);
  DRAFTMILL_RETURN_IF_ERROR(file_system_.MakeFolder(ParentPath(full)));
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, file_system_.OpenForWriting(full, OpenMode::kCreate));
  return std::make_unique<OutputStream>(std::move(file), &written_);
}

Status OutputFiles::Write(const std::string& path, std::string_view content) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<OutputStream> stream, Open(path));
  DRAFTMILL_RETURN_IF_ERROR(stream->Append(content));
  return stream->Close();
}

}  // namespace draftmill
