#include "stages/extract/weights/weight_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/start_threads.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// What direct reads must begin and end at: no file system asks for more.
constexpr std::int64_t kSector = 4096;

/// Reads until `bytes` is full or the file ends; -1 with errno on failure.
std::int64_t ReadFully(int descriptor, std::span<std::byte> bytes, std::int64_t offset) {
  std::int64_t done = 0;
  while (done < static_cast<std::int64_t>(bytes.size())) {
    const ssize_t got =
        pread(descriptor, bytes.data() + done, bytes.size() - static_cast<std::size_t>(done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
    if (done % kSector != 0) break;  // a direct read that ends within a sector has met the file's end
  }
  return done;
}

/// True where all bytes came from the page cache at once.
bool ReadCached(int descriptor, std::span<std::byte> bytes, std::int64_t offset) {
  const iovec target{bytes.data(), bytes.size()};
  return preadv2(descriptor, &target, 1, offset, RWF_NOWAIT) == static_cast<ssize_t>(bytes.size());
}

Hash128 DigestOf(std::span<const Hash128> parts) {
  StreamingHash hash;
  for (const Hash128& part : parts) hash.Update(std::as_bytes(std::span(part.bytes)));
  return hash.Digest128();
}

/// Two descriptors for each file, beside what the rest of the program opens: checkpoints of a thousand files are more than
/// the usual soft limit of 1,024. Where the hard limit does not allow it, opening says so.
void MakeRoomForDescriptors(std::size_t files) {
  constexpr rlim_t kOfOthers = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = 2 * static_cast<rlim_t>(files) + kOfOthers;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct WeightFiles::Piece {
  const TensorRead* read = nullptr;
  std::int64_t first_byte = 0;
  std::int64_t bytes = 0;
  Hash128* digest = nullptr;
};

Result<std::unique_ptr<WeightFiles>> WeightFiles::Open(const WeightsIndex& index) {
  std::unique_ptr<WeightFiles> files(new WeightFiles());  // NOLINT: the constructor is private
  MakeRoomForDescriptors(index.files.size());
  for (const WeightsFile& file : index.files) {
    DRAFTMILL_RETURN_IF_ERROR(files->OpenFile(JoinPath(index.model_folder, file.name), file.size_bytes));
  }
  return files;
}

WeightFiles::~WeightFiles() {
  for (const File& file : files_) {
    if (file.buffered >= 0) close(file.buffered);
    if (file.direct >= 0) close(file.direct);
  }
}

Status WeightFiles::OpenFile(const std::string& path, std::int64_t size_bytes) {
  files_.push_back({path, open(path.c_str(), O_RDONLY | O_CLOEXEC), -1});
  File& file = files_.back();
  if (file.buffered < 0) return ErrnoStatus(errno, path + ": opening it for reading");
  struct stat facts {};
  if (fstat(file.buffered, &facts) != 0) return ErrnoStatus(errno, path + ": asking for its size");
  if (facts.st_size != size_bytes) return InvalidInput(path + ": its size changed after its header was read");
  file.direct = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);  // -1 where the file system has none
  return OkStatus();
}

Status WeightFiles::ReadTensors(std::span<const TensorRead> reads, std::vector<Hash128>& digests) {
  std::vector<std::vector<Hash128>> piece_digests(reads.size());
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const std::int64_t bytes = reads[i].place->info.bytes;
    piece_digests[i].resize(static_cast<std::size_t>((bytes + kPieceBytes - 1) / kPieceBytes));
    for (std::size_t p = 0; p < piece_digests[i].size(); ++p) {
      const std::int64_t first = static_cast<std::int64_t>(p) * kPieceBytes;
      pieces.push_back({&reads[i], first, std::min(kPieceBytes, bytes - first), &piece_digests[i][p]});
    }
  }
  // In the order of the disk, whatever the order of the tensors.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    const TensorPlace& left = *a.read->place;
    const TensorPlace& right = *b.read->place;
    return std::pair(left.file, left.info.offset + a.first_byte) <
           std::pair(right.file, right.info.offset + b.first_byte);
  });
  const std::size_t count = std::min<std::size_t>(kReadersAtOnce, pieces.size());
  if (buffers_.size() < count) buffers_.resize(count);
  std::atomic<std::size_t> next = 0;
  std::vector<Status> statuses(pieces.size());
  if (count > 0) {
    std::vector<std::thread> threads = StartThreads(count - 1, [&](std::size_t t) {
      return std::thread([&, t] { ReadPieces(pieces, next, statuses, buffers_[t + 1]); });
    });
    ReadPieces(pieces, next, statuses, buffers_[0]);
    for (std::thread& thread : threads) thread.join();
  }
  for (const Status& status : statuses) DRAFTMILL_RETURN_IF_ERROR(status);
  digests.clear();
  for (const std::vector<Hash128>& of_tensor : piece_digests) digests.push_back(DigestOf(of_tensor));
  return OkStatus();
}

void WeightFiles::ReadPieces(std::span<const Piece> pieces, std::atomic<std::size_t>& next,
                             std::vector<Status>& statuses, AlignedBuffer<std::byte>& buffer) {
  for (std::size_t i = next++; i < pieces.size(); i = next++) {
    const Piece& piece = pieces[i];
    try {
      const Result<std::span<const std::byte>> bytes = ReadPiece(piece, buffer);
      statuses[i] = bytes.status();
      if (!bytes.ok()) continue;
      StreamingHash hash;
      hash.Update(*bytes);
      *piece.digest = hash.Digest128();
      if (piece.read->deliver) statuses[i] = piece.read->deliver(piece.first_byte, *bytes);
    } catch (const std::bad_alloc&) {
      statuses[i] =
          OutOfMemory("the operating system gave no memory for reading weights; lower limits.memory or free memory");
    }
  }
}

Result<std::span<const std::byte>> WeightFiles::ReadPiece(const Piece& piece, AlignedBuffer<std::byte>& buffer) {
  buffer.Grow(kPieceBytes + 2 * kSector);
  const TensorPlace& place = *piece.read->place;
  const File& file = files_[static_cast<std::size_t>(place.file)];
  const std::int64_t offset = place.info.offset + piece.first_byte;
  const auto count = static_cast<std::size_t>(piece.bytes);
  const std::span<std::byte> plain(buffer.data(), count);
  if (ReadCached(file.buffered, plain, offset)) return std::span<const std::byte>(plain);
  if (use_direct_ && file.direct >= 0) {
    const std::int64_t begin = offset / kSector * kSector;
    const std::int64_t end = (offset + piece.bytes + kSector - 1) / kSector * kSector;
    const std::int64_t got = ReadFully(file.direct, {buffer.data(), static_cast<std::size_t>(end - begin)}, begin);
    if (got >= offset - begin + piece.bytes) return std::span<const std::byte>(buffer.data() + (offset - begin), count);
    if (got < 0 && errno == EINVAL) use_direct_ = false;  // a file system that opens so but does not read so
    if (got < 0 && errno != EINVAL) return ErrnoStatus(errno, file.path + ": reading weights");
  }
  DRAFTMILL_RETURN_IF_ERROR(ReadBytes(place.file, offset, plain));
  return std::span<const std::byte>(plain);
}

Status WeightFiles::ReadBytes(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const {
  const File& source = files_[static_cast<std::size_t>(file)];
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        pread(source.buffered, bytes.data() + done, bytes.size() - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, source.path + ": reading weights");
    if (got == 0)
      return InvalidInput(source.path + ": ends before byte " +
                          std::to_string(offset + static_cast<std::int64_t>(bytes.size())) +
                          "; the file was cut short");
    done += static_cast<std::size_t>(got);
  }
  return OkStatus();
}

Result<FileStamp> WeightFiles::Stamp(std::int32_t file) const {
  const File& source = files_[static_cast<std::size_t>(file)];
  struct stat facts {};
  if (fstat(source.buffered, &facts) != 0) return ErrnoStatus(errno, source.path + ": asking for its size");
  constexpr std::int64_t kNsPerSecond = 1000000000;
  return FileStamp{facts.st_size, facts.st_mtim.tv_sec * kNsPerSecond + facts.st_mtim.tv_nsec};
}

}  // namespace draftmill
