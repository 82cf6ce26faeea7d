// Files that torch.load reads (weights_only=True, mmap=True): the zip-pickle form of torch.save, written without torch.
//
//   using namespace torch_archive;
//   Dict dict;
//   dict.Add("input_ids", Tensor{Dtype::kI64, {tokens}}).Add("data_id", Text{"7/0"});
//   DRAFTMILL_ASSIGN_OR_RETURN(Layout layout, Layout::Of(std::move(dict)));
//   file->WriteAt(layout.storage_offset(0) + done, piece);      // tensors' bytes in any order, in pieces
//   for (const FramePiece& piece : layout.Frame(crc32_of_each_storage)) file->WriteAt(piece.offset, piece.bytes);
//
// An archive is a zip file without compression (docs/formats.md, "torch archive"): `archive/data.pkl`, `archive/byteorder`,
// one record `archive/data/N` a tensor, `archive/version`, `archive/.data/serialization_id`. Every record's bytes begin at a
// multiple of 64, so that torch can map them. Sizes or offsets from 4 GiB on stand in zip64 fields; an archive that has none
// has no zip64 records. The bytes are a function of the content alone: no time, no name of the file.
//
// Sources: PKWARE APPNOTE 6.3.10 (zip); torch/serialization.py and caffe2/serialize/inline_container.cc of torch 2.11; CPython
// Lib/pickletools.py (protocol 2). The pickle memoizes nothing: tensors of a file share no storage.
//
// Plain values and pure functions, safe from any thread. Errors: kInvalidInput for what the format cannot hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "formats/safetensors.h"

namespace draftmill::torch_archive {

using safetensors::Dtype;

/// A contiguous tensor on the CPU. kBool, kU8, kI32, kI64, kBf16 and kF32 are known.
struct Tensor {
  Dtype dtype = Dtype::kI64;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const;
  std::int64_t bytes() const;
};

struct Value;

/// A Python dict with its entries in order.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  Dict& Add(Value key, Value value);
};

/// What a file may hold.
struct Value {
  std::variant<Tensor, std::string, bool, std::int64_t, Dict> data;

  Value(Tensor tensor) : data(std::move(tensor)) {}     // NOLINT(google-explicit-constructor)
  Value(std::string text) : data(std::move(text)) {}    // NOLINT(google-explicit-constructor)
  Value(const char* text) : data(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Value(bool flag) : data(flag) {}                      // NOLINT(google-explicit-constructor)
  Value(std::int64_t number) : data(number) {}          // NOLINT(google-explicit-constructor)
  Value(Dict dict) : data(std::move(dict)) {}           // NOLINT(google-explicit-constructor)
};

/// Bytes of the file and where they stand.
struct FramePiece {
  std::int64_t offset = 0;
  std::string bytes;
};

/// From here on a size or an offset stands in a zip64 field and all ones in its own.
inline constexpr std::int64_t kZip64Limit = 0xFFFFFFFF;

/// Where everything stands. Storages are numbered in the order in which their tensors occur in the value.
class Layout {
 public:
  /// `zip64_from` below kZip64Limit gives small files the form of large ones, for tests.
  static Result<Layout> Of(const Value& value, std::int64_t zip64_from = kZip64Limit);

  std::int64_t file_bytes() const { return file_bytes_; }
  std::size_t storages() const { return storages_.size(); }
  std::int64_t storage_offset(std::size_t storage) const;
  std::int64_t storage_bytes(std::size_t storage) const;

  /// Everything but the storages' bytes. `crc32` is that of each storage (zlib's crc32).
  std::vector<FramePiece> Frame(std::span<const std::uint32_t> crc32) const;

 private:
  struct Record {
    std::string name;
    std::string content;  ///< empty for a storage
    std::int64_t bytes = 0;
    std::int64_t header_offset = 0;
    std::int64_t data_offset = 0;
  };
  void Place(Record record);
  bool IsLarge(std::int64_t number) const { return number >= zip64_from_; }
  std::int64_t Clipped(std::int64_t number) const { return IsLarge(number) ? kZip64Limit : number; }
  std::int64_t Zip64ExtraBytes(std::int64_t bytes) const;
  std::string LocalHeader(const Record& record, std::uint64_t crc) const;
  std::string DirectoryEntry(const Record& record, std::uint64_t crc) const;
  std::string EndOfDirectory() const;

  std::vector<Record> records_;
  std::vector<std::size_t> storages_;  ///< indices into records_
  std::int64_t zip64_from_ = kZip64Limit;
  std::int64_t directory_offset_ = 0;
  std::int64_t directory_bytes_ = 0;
  std::int64_t file_bytes_ = 0;
  bool has_zip64_ = false;
};

/// A whole small file. `storages` holds the bytes of each tensor.
Result<std::string> BuildArchive(const Value& value, const std::vector<std::span<const std::byte>>& storages);

}  // namespace draftmill::torch_archive
