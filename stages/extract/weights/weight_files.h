// The bytes of a checkpoint's files: large pieces read by several threads at once, past the page cache where the system
// allows it and from it where they already are there.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WeightFiles> files, WeightFiles::Open(index));
//   DRAFTMILL_RETURN_IF_ERROR(files->ReadTensors(reads, digests));
//
// A tensor is cut into pieces of kPieceBytes from its first byte on; each is read, hashed and delivered by one thread, in
// no order. ReadTensors is called from one thread at a time; ReadBytes from any. Errors: kInvalidInput where a file's size
// changed after its header was read, kIo for the disk, and what a delivery says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "stages/extract/model/weights_index.h"
#include "stages/extract/weights/aligned_buffer.h"

namespace draftmill {

/// Bytes of one read.
inline constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
/// Reads that are under way at once: what a fast disk needs to be busy.
inline constexpr int kReadersAtOnce = 8;
/// What reading takes besides its results.
inline constexpr std::int64_t kReadingBytes = kReadersAtOnce * (kPieceBytes + 8192);

/// A tensor to be read.
struct TensorRead {
  const TensorPlace* place = nullptr;
  /// Takes bytes of the tensor from `first_byte` on; called by several threads. Empty: the bytes are hashed only.
  std::function<Status(std::int64_t first_byte, std::span<const std::byte> bytes)> deliver;
};

/// Equal stamps: nobody wrote to the file between them (as far as its clock tells).
struct FileStamp {
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

class WeightFiles {
 public:
  /// Opens all files and compares their sizes.
  static Result<std::unique_ptr<WeightFiles>> Open(const WeightsIndex& index);
  ~WeightFiles();
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;

  /// Reads the tensors. digests[i] is XXH3-128 over the digests (XXH3-128) of tensor i's pieces.
  Status ReadTensors(std::span<const TensorRead> reads, std::vector<Hash128>& digests);

  /// Reads some bytes through the page cache.
  Status ReadBytes(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const;

  /// What tells that somebody wrote to an open file: its size and its time of change.
  Result<FileStamp> Stamp(std::int32_t file) const;

  /// False makes every read go through the page cache; for tests and comparisons.
  void UseDirect(bool use) { use_direct_ = use; }

 private:
  struct File {
    std::string path;
    int buffered = -1;
    int direct = -1;
  };
  struct Piece;

  WeightFiles() = default;
  Status OpenFile(const std::string& path, std::int64_t size_bytes);
  void ReadPieces(std::span<const Piece> pieces, std::atomic<std::size_t>& next, std::vector<Status>& statuses,
                  AlignedBuffer<std::byte>& buffer);
  Result<std::span<const std::byte>> ReadPiece(const Piece& piece, AlignedBuffer<std::byte>& buffer);

  std::vector<File> files_;
  std::vector<AlignedBuffer<std::byte>> buffers_;
  std::atomic<bool> use_direct_ = true;
};

}  // namespace draftmill
