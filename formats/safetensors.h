// Safetensors files: reading and building their headers, and reading the bytes of a tensor.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(safetensors::Header header, safetensors::ReadHeader(*file, path));
//   const safetensors::TensorInfo* tensor = header.Find("model.norm.weight");
//   DRAFTMILL_ASSIGN_OR_RETURN(auto ids, safetensors::ReadTensor<std::int32_t>(*file, path, *tensor));
//
// The format (github.com/huggingface/safetensors, README and safetensors/src/tensor.rs): eight bytes little-endian with
// the length of a JSON header, the header, then the tensors' bytes without holes. Headers come from outside, so every
// number is bounded and checked before it is used: a header is accepted only if its tensors tile the rest of the file.
// As in the Rust original, the header must begin with '{', and the tensors' data may begin at any offset.
// Beyond the original, a tensor name that stands twice is refused: readers disagree about which one counts.
//
// Errors: kInvalidInput for what a file says wrongly (the message names file, tensor and reason), kIo for the disk.
// Values are plain; functions are safe from any thread, an open file as its own header says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "state/file_system.h"

namespace draftmill::safetensors {

/// The element types of the format. F4, F6 and the scales of 8 bits hold no type of C++.
enum class Dtype : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// The name in the header, e.g. "BF16".
std::string_view DtypeName(Dtype dtype);
/// The type of that name, if it is one.
std::optional<Dtype> DtypeFromName(std::string_view name);
/// Bits of one element: 4, 6, 8, 16, 32 or 64.
int DtypeBits(Dtype dtype);

/// One tensor of a file.
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kU8;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< of the first byte, from the start of the file
  std::int64_t bytes = 0;

  /// Product of the shape; 1 for a scalar.
  std::int64_t elements() const;
};

/// "BF16 [3, 4]": for messages.
std::string DescribeTensor(const TensorInfo& tensor);

/// Free text of a file: names and values.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// What the header of a file says, checked against the file's size.
class Header {
 public:
  Header() = default;
  /// Takes what ParseHeader or BuildHeader checked: names are distinct.
  Header(std::vector<TensorInfo> tensors, Metadata metadata, std::int64_t data_start, std::int64_t file_bytes);

  /// All tensors, in the order in which their bytes stand in the file.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// The tensor of that name, or nullptr. Logarithmic.
  const TensorInfo* Find(std::string_view name) const;
  /// The members of `__metadata__`, in the order of the header; empty where there is none.
  const Metadata& metadata() const { return metadata_; }
  /// One value of the metadata.
  std::optional<std::string_view> FindMetadata(std::string_view key) const;
  /// Where the tensors' bytes begin: eight and the length of the JSON.
  std::int64_t data_start() const { return data_start_; }
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, sorted by name
  Metadata metadata_;
  std::int64_t data_start_ = 0;
  std::int64_t file_bytes_ = 0;
};

/// The longest JSON header that is read, as in the original.
inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

/// Reads a header's JSON. `file_bytes` is the size of the whole file; `path` is for messages.
Result<Header> ParseHeader(std::string_view json, std::int64_t file_bytes, std::string_view path);

/// Reads and checks the header of an open file, no tensor bytes.
Result<Header> ReadHeader(ReadableFile& file, std::string_view path);

/// Opens a file and reads its header.
Result<Header> ReadHeader(FileSystem& file_system, const std::string& path);

/// Reads a tensor's bytes (or, with `skip_bytes`, the part from there on) until `buffer` is full. Reading past the
/// tensor's end is a bug of the caller; a file that became shorter is kIo.
Status ReadTensorBytes(ReadableFile& file, std::string_view path, const TensorInfo& tensor, std::span<std::byte> buffer,
                       std::int64_t skip_bytes = 0);

/// A whole tensor as numbers. The element's size must be that of the dtype. This machine is little-endian.
template <typename T>
Result<std::vector<T>> ReadTensor(ReadableFile& file, std::string_view path, const TensorInfo& tensor) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (DtypeBits(tensor.dtype) != static_cast<int>(8 * sizeof(T))) {
    return InvalidInput(std::string(path) + ": tensor '" + tensor.name + "' is " + DescribeTensor(tensor) +
                        ", expected elements of " + std::to_string(sizeof(T)) + " bytes");
  }
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  DRAFTMILL_RETURN_IF_ERROR(ReadTensorBytes(file, path, tensor, std::as_writable_bytes(std::span<T>(values))));
  return values;
}

/// A tensor that is to be written.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kU8;
  std::vector<std::int64_t> shape;
};

/// A header that is ready to be written at offset 0, and what it says.
struct BuiltHeader {
  std::string bytes;  ///< length, JSON and padding: everything before the data
  Header header;
};

/// Lays out a file: tensors in the given order without holes, the header padded with spaces so that the data begins at
/// a multiple of `data_alignment` (a multiple of 8). The bytes depend on the arguments alone. kInvalidInput where names
/// stand twice, a shape is negative or too large, or the header would be longer than kMaxHeaderBytes.
Result<BuiltHeader> BuildHeader(const std::vector<TensorSpec>& tensors, const Metadata& metadata,
                                std::int64_t data_alignment = 8);

}  // namespace draftmill::safetensors
