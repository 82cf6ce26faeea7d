// A safetensors file of draftmill's own: published as one, and read with the suspicion that its bytes were damaged.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(file_system, path, {"draftmill.corpus", 1}));
//   DRAFTMILL_ASSIGN_OR_RETURN(auto ids, file.Read<std::int32_t>("input_ids", safetensors::Dtype::kI32, {tokens}));
//
// Every file says in its metadata what it is (`format`) and in which version (`format_version`). Errors: kCorrupt where
// the file is not what draftmill writes, kUnsupported for a version of a later draftmill, kNotFound, kIo.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/published_file.h"
#include "formats/safetensors.h"
#include "state/file_system.h"

namespace draftmill {

/// What a file says it is.
struct FileFormat {
  std::string_view name;
  int version = 1;
};

/// The first two entries of every file's metadata.
safetensors::Metadata FormatMetadata(FileFormat format);

class TensorFile {
 public:
  /// Opens a file and checks header, format and version.
  static Result<TensorFile> Open(FileSystem& file_system, const std::string& path, FileFormat format);

  const std::string& path() const { return path_; }
  const safetensors::Header& header() const { return header_; }
  ReadableFile& file() { return *file_; }

  /// A value of the metadata that has to be there.
  Result<std::string> RequireMetadata(std::string_view key) const;
  /// The same, as a whole number from 0.
  Result<std::int64_t> RequireNumber(std::string_view key) const;

  /// The tensor of that name, with exactly this type and shape.
  Result<const safetensors::TensorInfo*> Require(std::string_view name, safetensors::Dtype dtype,
                                                 const std::vector<std::int64_t>& shape) const;

  /// The numbers of a tensor with exactly this type and shape.
  template <typename T>
  Result<std::vector<T>> Read(std::string_view name, safetensors::Dtype dtype, const std::vector<std::int64_t>& shape) {
    DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::TensorInfo* tensor, Require(name, dtype, shape));
    Result<std::vector<T>> values = safetensors::ReadTensor<T>(*file_, path_, *tensor);
    if (!values.ok()) return AsCorrupt(values.status());
    return values;
  }

 private:
  TensorFile(std::string path, std::unique_ptr<ReadableFile> file, safetensors::Header header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  safetensors::Header header_;
};

/// A tensor and its bytes, to be published.
struct TensorData {
  safetensors::TensorSpec spec;
  std::span<const std::byte> bytes;
};

/// The bytes of a vector, for TensorData.
template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

/// Publishes a file: `*.partial`, Sync, Rename, SyncFolder. Readers see the old file or the new one. The digest is
/// XXH3-128 of all bytes. `path` is relative to the work folder; its folder must exist.
Result<PublishedFile> PublishTensorFile(FileSystem& file_system, const std::string& work_folder,
                                        const std::string& path, const std::vector<TensorData>& tensors,
                                        const safetensors::Metadata& metadata);

}  // namespace draftmill
