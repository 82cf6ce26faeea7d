#include "state/direct_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/start_threads.h"

namespace draftmill {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;
/// Memory that lies so is taken by every disk's controller as it is.
constexpr std::uintptr_t kMemoryAlignment = 512;

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kDirectBlock}); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

AlignedBytes AllocateAligned(std::int64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(
      ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{kDirectBlock}, std::nothrow)));
}

/// One call of Write while its pieces are written.
struct DirectJob {
  int descriptor = -1;
  std::int64_t offset = 0;
  std::span<const std::byte> bytes;
  bool is_aligned = false;
  std::atomic<std::size_t> next{0};  ///< first byte that nobody took
  std::atomic<int> error{0};         ///< the first errno
};

/// Whole blocks at `offset`; 0 or an errno.
int WriteBlocks(int descriptor, std::span<const std::byte> bytes, std::int64_t offset) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count =
        ::pwrite(descriptor, bytes.data() + done, bytes.size() - done, offset + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    // A write that ended within a block is taken up at the block's beginning.
    const auto whole = static_cast<std::size_t>(count) / kDirectBlock * kDirectBlock;
    if (whole == 0) return EIO;
    done += whole;
  }
  return 0;
}

/// Takes pieces until there are none left.
void WritePieces(DirectJob& job) {
  AlignedBytes copy;
  if (!job.is_aligned) {
    copy = AllocateAligned(kPieceBytes);
    if (copy == nullptr) {
      job.error = ENOMEM;
      return;
    }
  }
  while (job.error == 0) {
    const std::size_t first = job.next.fetch_add(kPieceBytes);
    if (first >= job.bytes.size()) return;
    std::span<const std::byte> piece =
        job.bytes.subspan(first, std::min<std::size_t>(kPieceBytes, job.bytes.size() - first));
    if (copy != nullptr) {
      std::memcpy(copy.get(), piece.data(), piece.size());
      piece = {copy.get(), piece.size()};
    }
    int none = 0;
    const int error = WriteBlocks(job.descriptor, piece, job.offset + static_cast<std::int64_t>(first));
    if (error != 0) job.error.compare_exchange_strong(none, error);
  }
}

}  // namespace

DirectWriter::~DirectWriter() {
  if (direct_ >= 0) ::close(direct_);
}

int DirectWriter::Open() {
  std::call_once(opened_, [this] {
    // By its descriptor: the name may be another file's by now. Where /proc is not there, or the file system has no
    // direct I/O, the page cache does.
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor_);
    direct_ = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  });
  return direct_;
}

Result<bool> DirectWriter::Write(std::int64_t offset, std::span<const std::byte> bytes) {
  DRAFTMILL_CHECK(offset % kDirectBlock == 0 && bytes.size() % kDirectBlock == 0, "direct writes are of whole blocks");
  if (refused_ || Open() < 0) return false;
  DirectJob job;
  job.descriptor = direct_;
  job.offset = offset;
  job.bytes = bytes;
  job.is_aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % kMemoryAlignment == 0;
  const auto pieces = static_cast<std::int64_t>((bytes.size() + kPieceBytes - 1) / kPieceBytes);
  const auto helpers = static_cast<std::size_t>(std::clamp<std::int64_t>(pieces, 1, kDirectWriters) - 1);
  std::vector<std::thread> threads =
      StartThreads(helpers, [&job](std::size_t) { return std::thread([&job] { WritePieces(job); }); });
  WritePieces(job);
  for (std::thread& thread : threads) thread.join();
  if (job.error == 0) return true;
  // EINVAL: a file system that opens so but does not write so. ENOMEM: no room for copies. The page cache does, over
  // whatever was written.
  if (job.error == EINVAL) refused_ = true;
  if (job.error == EINVAL || job.error == ENOMEM) return false;
  return ErrnoStatus(job.error, "write");
}

}  // namespace draftmill
