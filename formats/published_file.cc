#include "formats/published_file.h"

#include <memory>
#include <vector>

namespace draftmill {

Result<PublishedFile> DigestFile(FileSystem& file_system, const std::string& work_folder, const std::string& path) {
  constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  const std::string full_path = JoinPath(work_folder, path);
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, file_system.OpenForReading(full_path));
  std::vector<std::byte> buffer(kPieceBytes);
  PublishedFile result{.path = path, .bytes = 0, .digest = {}};
  StreamingHash hash;
  for (;;) {
    Result<std::size_t> read = file->ReadAt(result.bytes, buffer);
    if (!read.ok()) return read.status().WithContext(full_path);
    hash.Update(std::span<const std::byte>(buffer.data(), *read));
    result.bytes += static_cast<std::int64_t>(*read);
    if (*read < buffer.size()) break;
  }
  result.digest = hash.Digest128();
  return result;
}

std::string PartialPath(const std::string& path) { return path + ".partial"; }

Status AsCorrupt(const Status& status) {
  return status.code() == StatusCode::kInvalidInput ? Corrupt(status.message()) : status;
}

}  // namespace draftmill
