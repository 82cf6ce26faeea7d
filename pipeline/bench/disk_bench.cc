#include "pipeline/bench/disk_bench.h"

#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "base/steady_seconds.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPage = 4096;

struct FreePages {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kPage}); }
};

Status WriteFile(FileSystem& files, const std::string& path, std::span<const std::byte> bytes,
                 std::int64_t file_bytes) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.OpenForWriting(path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->Allocate(file_bytes));
  DRAFTMILL_RETURN_IF_ERROR(file->Truncate(file_bytes));
  for (std::int64_t offset = 0; offset < file_bytes; offset += static_cast<std::int64_t>(bytes.size())) {
    DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(offset, bytes));
    DRAFTMILL_RETURN_IF_ERROR(file->Sync());
  }
  return file->Close();
}

}  // namespace

Result<double> MeasureDisk(FileSystem& files, const std::string& folder, const DiskBenchRequest& request) {
  const auto count = static_cast<std::size_t>(request.write_bytes);
  const std::unique_ptr<std::byte, FreePages> memory(
      static_cast<std::byte*>(::operator new (count, std::align_val_t{kPage})));
  // Bytes that no disk can leave out or compress away.
  std::uint64_t random = 88172645463325252U;
  const std::span<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(memory.get()), count / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    word = random;
  }
  const std::string path = JoinPath(folder, "disk-bench.partial");
  std::int64_t written = 0;
  const double begin = SteadySeconds();
  Status status;
  while (status.ok() && (written == 0 || SteadySeconds() - begin < request.seconds)) {
    status = WriteFile(files, path, {memory.get(), count}, request.file_bytes);
    written += request.file_bytes;
  }
  const double seconds = SteadySeconds() - begin;
  const Status removed = files.Remove(path);
  DRAFTMILL_RETURN_IF_ERROR(status);
  DRAFTMILL_RETURN_IF_ERROR(removed);
  return static_cast<double>(written) / seconds;
}

}  // namespace draftmill
