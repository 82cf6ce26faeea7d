#include "formats/tensor_file.h"

#include <charconv>

namespace draftmill {

safetensors::Metadata FormatMetadata(FileFormat format) {
  return {{"format", std::string(format.name)}, {"format_version", std::to_string(format.version)}};
}

Result<TensorFile> TensorFile::Open(FileSystem& file_system, const std::string& path, FileFormat format) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> handle, file_system.OpenForReading(path));
  Result<safetensors::Header> header = safetensors::ReadHeader(*handle, path);
  if (!header.ok()) return AsCorrupt(header.status());
  TensorFile file(path, std::move(handle), *std::move(header));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string name, file.RequireMetadata("format"));
  if (name != format.name) {
    return Corrupt(path + ": its metadata says format '" + name + "', expected '" + std::string(format.name) + "'");
  }
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t version, file.RequireNumber("format_version"));
  if (version != format.version) {
    return Unsupported(path + ": format version " + std::to_string(version) + "; this draftmill reads version " +
                       std::to_string(format.version) + ". Nothing was changed; use the draftmill that wrote it");
  }
  return file;
}

Result<std::string> TensorFile::RequireMetadata(std::string_view key) const {
  const std::optional<std::string_view> value = header_.FindMetadata(key);
  if (!value) return Corrupt(path_ + ": its metadata lacks '" + std::string(key) + "'");
  return std::string(*value);
}

Result<std::int64_t> TensorFile::RequireNumber(std::string_view key) const {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, RequireMetadata(key));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    return Corrupt(path_ + ": its metadata says " + std::string(key) + " '" + text + "', expected a whole number");
  }
  return number;
}

Result<const safetensors::TensorInfo*> TensorFile::Require(std::string_view name, safetensors::Dtype dtype,
                                                           const std::vector<std::int64_t>& shape) const {
  const safetensors::TensorInfo* tensor = header_.Find(name);
  if (tensor == nullptr) return Corrupt(path_ + ": it lacks tensor '" + std::string(name) + "'");
  if (tensor->dtype != dtype || tensor->shape != shape) {
    safetensors::TensorInfo expected;
    expected.dtype = dtype;
    expected.shape = shape;
    return Corrupt(path_ + ": tensor '" + std::string(name) + "' is " + safetensors::DescribeTensor(*tensor) +
                   ", expected " + safetensors::DescribeTensor(expected));
  }
  return tensor;
}

Result<PublishedFile> PublishTensorFile(FileSystem& file_system, const std::string& work_folder,
                                        const std::string& path, const std::vector<TensorData>& tensors,
                                        const safetensors::Metadata& metadata) {
  std::vector<safetensors::TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const TensorData& tensor : tensors) specs.push_back(tensor.spec);
  DRAFTMILL_ASSIGN_OR_RETURN(const safetensors::BuiltHeader built, safetensors::BuildHeader(specs, metadata));

  const std::string full_path = JoinPath(work_folder, path);
  const std::string partial_path = PartialPath(full_path);
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                             file_system.OpenForWriting(partial_path, OpenMode::kCreate));
  DRAFTMILL_RETURN_IF_ERROR(file->Allocate(built.header.file_bytes()));
  StreamingHash hash;
  hash.Update(built.bytes);
  DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(built.bytes))));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const safetensors::TensorInfo& place = built.header.tensors()[i];
    DRAFTMILL_CHECK(static_cast<std::int64_t>(tensors[i].bytes.size()) == place.bytes, "the bytes of " + place.name);
    hash.Update(tensors[i].bytes);
    DRAFTMILL_RETURN_IF_ERROR(file->WriteAt(place.offset, tensors[i].bytes));
  }
  DRAFTMILL_RETURN_IF_ERROR(file->Sync());
  DRAFTMILL_RETURN_IF_ERROR(file->Close());
  DRAFTMILL_RETURN_IF_ERROR(file_system.Rename(partial_path, full_path));
  DRAFTMILL_RETURN_IF_ERROR(file_system.SyncFolder(ParentPath(full_path)));
  return PublishedFile{.path = path, .bytes = built.header.file_bytes(), .digest = hash.Digest128()};
}

}  // namespace draftmill
