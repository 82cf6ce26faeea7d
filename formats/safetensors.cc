#include "formats/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/json.h"

namespace draftmill::safetensors {
namespace {

/// How the first line of a Git LFS pointer begins, as long as the length of a header.
constexpr std::string_view kLfsPointer = "version ";

static_assert(std::endian::native == std::endian::little, "tensors are read and written in place, little-endian");

struct DtypeRow {
  std::string_view name;
  int bits;
};

// In the order of the enumeration.
constexpr std::array<DtypeRow, 22> kDtypes = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

constexpr std::size_t kMaxDimensions = 64;
constexpr std::int64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

Status BadHeader(std::string_view path, const std::string& reason) {
  return InvalidInput(std::string(path) + ": bad safetensors header: " + reason);
}

Status BadTensor(std::string_view path, std::string_view tensor, const std::string& reason) {
  return BadHeader(path, "tensor '" + std::string(tensor) + "' " + reason);
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

// Bytes of a tensor, or nothing where the number does not fit or is no whole number of bytes.
std::optional<std::int64_t> TensorBytes(Dtype dtype, const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t bits = DtypeBits(dtype);
  for (std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Reads a list of numbers that are not negative and fit int64.
bool ReadNumbers(simdjson::dom::element element, std::size_t max_count, std::vector<std::int64_t>& numbers) {
  simdjson::dom::array array;
  if (element.get(array) != simdjson::SUCCESS || array.size() > max_count) return false;
  numbers.reserve(array.size());
  for (simdjson::dom::element item : array) {
    std::int64_t number = 0;
    if (item.get(number) != simdjson::SUCCESS || number < 0) return false;
    numbers.push_back(number);
  }
  return true;
}

class HeaderReader {
 public:
  HeaderReader(std::string_view path, std::int64_t data_start, std::int64_t file_bytes)
      : path_(path), data_start_(data_start), data_bytes_(file_bytes - data_start) {}

  Status Read(simdjson::dom::object root) {
    tensors_.reserve(root.size());
    for (simdjson::dom::key_value_pair member : root) {
      DRAFTMILL_RETURN_IF_ERROR(member.key == kMetadataKey ? ReadMetadata(member.value)
                                                           : ReadTensorInfo(member.key, member.value));
    }
    return CheckTiling();
  }

  Header Finish(std::int64_t file_bytes) && {
    return {std::move(tensors_), std::move(metadata_), data_start_, file_bytes};
  }

 private:
  Status ReadMetadata(simdjson::dom::element element) {
    simdjson::dom::object object;
    if (seen_metadata_) return BadHeader(path_, "'__metadata__' stands twice");
    seen_metadata_ = true;
    if (element.get(object) != simdjson::SUCCESS) return BadHeader(path_, "'__metadata__' is no object");
    for (simdjson::dom::key_value_pair member : object) {
      std::string_view text;
      if (member.value.get(text) != simdjson::SUCCESS) {
        return BadHeader(path_, "'__metadata__." + std::string(member.key) + "' is no text");
      }
      metadata_.emplace_back(member.key, text);
    }
    return OkStatus();
  }

  Status ReadTensorInfo(std::string_view name, simdjson::dom::element element) {
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS) return BadTensor(path_, name, "is described by no object");
    TensorInfo tensor;
    tensor.name = name;
    std::vector<std::int64_t> span;
    int seen_dtype = 0, seen_shape = 0, seen_offsets = 0;
    for (simdjson::dom::key_value_pair member : object) {
      if (member.key == "dtype") {
        ++seen_dtype;
        DRAFTMILL_RETURN_IF_ERROR(ReadDtype(member.value, tensor));
      } else if (member.key == "shape" && ++seen_shape == 1) {
        if (!ReadNumbers(member.value, kMaxDimensions, tensor.shape)) {
          return BadTensor(path_, name, "has a shape that is no short list of whole numbers from 0");
        }
      } else if (member.key == "data_offsets" && ++seen_offsets == 1) {
        if (!ReadNumbers(member.value, 2, span) || span.size() != 2) {
          return BadTensor(path_, name, "has data_offsets that are no pair of whole numbers from 0");
        }
      }
    }
    if (seen_dtype != 1 || seen_shape != 1 || seen_offsets != 1) {
      return BadTensor(path_, name, "needs dtype, shape and data_offsets once each");
    }
    return PlaceTensor(span[0], span[1], std::move(tensor));
  }

  Status ReadDtype(simdjson::dom::element element, TensorInfo& tensor) {
    std::string_view text;
    if (element.get(text) != simdjson::SUCCESS) return BadTensor(path_, tensor.name, "has a dtype that is no text");
    const std::optional<Dtype> dtype = DtypeFromName(text);
    if (!dtype) return BadTensor(path_, tensor.name, "has the unknown dtype '" + std::string(text.substr(0, 40)) + "'");
    tensor.dtype = *dtype;
    return OkStatus();
  }

  Status PlaceTensor(std::int64_t begin, std::int64_t end, TensorInfo tensor) {
    const std::optional<std::int64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes) {
      return BadTensor(
          path_, tensor.name,
          "has the impossible size " + std::string(DtypeName(tensor.dtype)) + " " + ShapeText(tensor.shape));
    }
    if (end < begin || end - begin != *bytes) {
      return BadTensor(path_, tensor.name,
                       DescribeTensor(tensor) + " needs " + std::to_string(*bytes) + " bytes, but its data_offsets [" +
                           std::to_string(begin) + ", " + std::to_string(end) + "] cover " +
                           (end < begin ? "none" : std::to_string(end - begin)));
    }
    if (end > std::numeric_limits<std::int64_t>::max() - data_start_) {
      return BadTensor(path_, tensor.name, "ends beyond any file, at " + std::to_string(end));
    }
    tensor.offset = data_start_ + begin;
    tensor.bytes = *bytes;
    tensors_.push_back(std::move(tensor));
    return OkStatus();
  }

  // The tensors in the order of their bytes, each beginning where the one before ends, the last at the end of the file.
  Status CheckTiling() {
    const auto before = [](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
    };
    if (!std::is_sorted(tensors_.begin(), tensors_.end(), before)) {
      std::stable_sort(tensors_.begin(), tensors_.end(), before);
    }
    std::int64_t expected = data_start_;
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.offset != expected) {
        return BadTensor(path_, tensor.name,
                         (tensor.offset < expected ? "overlaps the tensor before it: begins at byte "
                                                   : "leaves a hole before it: begins at byte ") +
                             std::to_string(tensor.offset - data_start_) + " of the data, expected " +
                             std::to_string(expected - data_start_));
      }
      expected += tensor.bytes;
    }
    return CheckFileSize(expected - data_start_);
  }

  Status CheckFileSize(std::int64_t needed) const {
    if (needed == data_bytes_) return OkStatus();
    const std::string sizes = "its tensors take " + std::to_string(needed) + " bytes after the header, there are " +
                              std::to_string(data_bytes_);
    if (data_bytes_ < needed) {
      return InvalidInput(std::string(path_) + ": the file is cut short: " + sizes + "; fetch it again");
    }
    return BadHeader(path_, sizes + ": bytes that belong to no tensor");
  }

  std::string_view path_;
  std::int64_t data_start_;
  std::int64_t data_bytes_;
  std::vector<TensorInfo> tensors_;
  Metadata metadata_;
  bool seen_metadata_ = false;
};

// The first name that stands twice, if one does.
std::optional<std::string> FirstRepeated(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return std::nullopt;
  return std::string(*twice);
}

Status CheckNames(const std::vector<TensorInfo>& tensors, const Metadata& metadata, std::string_view path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  if (auto twice = FirstRepeated(std::move(names))) return BadTensor(path, *twice, "stands twice");
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : metadata) keys.push_back(key);
  if (auto twice = FirstRepeated(std::move(keys))) return BadHeader(path, "'__metadata__." + *twice + "' stands twice");
  return OkStatus();
}

void AppendTensorJson(const TensorInfo& tensor, std::string& out) {
  json::AppendQuoted(tensor.name, out);
  out += ":{\"dtype\":\"";
  out += DtypeName(tensor.dtype);
  out += "\",\"shape\":[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(tensor.shape[i]);
  }
  out += "],\"data_offsets\":[" + std::to_string(tensor.offset) + "," + std::to_string(tensor.offset + tensor.bytes) +
         "]}";
}

// Tensors back to back from offset 0.
Result<std::vector<TensorInfo>> PlaceTensors(const std::vector<TensorSpec>& specs) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(specs.size());
  std::int64_t next = 0;
  for (const TensorSpec& spec : specs) {
    const std::optional<std::int64_t> bytes = TensorBytes(spec.dtype, spec.shape);
    if (!bytes || spec.name == kMetadataKey) {
      return InvalidInput("a tensor '" + spec.name + "' of shape " + ShapeText(spec.shape) + " cannot be written");
    }
    tensors.push_back({.name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .offset = next, .bytes = *bytes});
    if (__builtin_add_overflow(next, *bytes, &next) || next > std::numeric_limits<std::int64_t>::max() / 2) {
      return InvalidInput("tensors up to '" + spec.name + "' are larger than any file");
    }
  }
  return tensors;
}

std::string HeaderJson(const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (std::size_t i = 0; i < metadata.size(); ++i) {
      if (i > 0) json += ',';
      json::AppendQuoted(metadata[i].first, json);
      json += ':';
      json::AppendQuoted(metadata[i].second, json);
    }
    json += '}';
  }
  for (const TensorInfo& tensor : tensors) {
    if (json.size() > 1) json += ',';
    AppendTensorJson(tensor, json);
  }
  return json + "}";
}

}  // namespace

std::string_view DtypeName(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

std::optional<Dtype> DtypeFromName(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

int DtypeBits(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bits; }

std::int64_t TensorInfo::elements() const {
  if (bytes == 0) return 0;  // the other extents of an empty tensor may be of any size
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string DescribeTensor(const TensorInfo& tensor) {
  return std::string(DtypeName(tensor.dtype)) + " " + ShapeText(tensor.shape);
}

Header::Header(std::vector<TensorInfo> tensors, Metadata metadata, std::int64_t data_start, std::int64_t file_bytes)
    : tensors_(std::move(tensors)),
      by_name_(tensors_.size()),
      metadata_(std::move(metadata)),
      data_start_(data_start),
      file_bytes_(file_bytes) {
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::uint32_t a, std::uint32_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorInfo* Header::Find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](std::uint32_t i, std::string_view key) { return tensors_[i].name < key; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

std::optional<std::string_view> Header::FindMetadata(std::string_view key) const {
  for (const auto& [name, value] : metadata_) {
    if (name == key) return value;
  }
  return std::nullopt;
}

Result<Header> ParseHeader(std::string_view json, std::int64_t file_bytes, std::string_view path) {
  const auto json_bytes = static_cast<std::int64_t>(json.size());
  if (json_bytes > kMaxHeaderBytes) {
    return BadHeader(path, std::to_string(json_bytes) + " bytes long, at most " + std::to_string(kMaxHeaderBytes));
  }
  if (file_bytes - kLengthBytes < json_bytes) {
    return InvalidInput(std::string(path) + ": the file is cut short within its header");
  }
  if (json.empty() || json.front() != '{') return BadHeader(path, "it does not begin with '{'");
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root); error != simdjson::SUCCESS) {
    return BadHeader(path, simdjson::error_message(error));
  }
  HeaderReader reader(path, kLengthBytes + json_bytes, file_bytes);
  DRAFTMILL_RETURN_IF_ERROR(reader.Read(root));
  Header header = std::move(reader).Finish(file_bytes);
  DRAFTMILL_RETURN_IF_ERROR(CheckNames(header.tensors(), header.metadata(), path));
  return header;
}

Result<Header> ReadHeader(ReadableFile& file, std::string_view path) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t file_bytes, file.Size());
  std::uint64_t json_bytes = 0;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t length_read,
                             file.ReadAt(0, std::as_writable_bytes(std::span(&json_bytes, 1))));
  if (length_read < sizeof json_bytes) {
    return InvalidInput(std::string(path) + ": no safetensors file: it has " + std::to_string(file_bytes) + " bytes");
  }
  if (std::memcmp(&json_bytes, kLfsPointer.data(), sizeof json_bytes) == 0) {
    return InvalidInput(std::string(path) +
                        ": holds the pointer of Git LFS, not the weights it stands for: fetch them (git lfs pull)");
  }
  if (json_bytes > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    return BadHeader(path, "its length is given as " + std::to_string(json_bytes) + " bytes, at most " +
                               std::to_string(kMaxHeaderBytes) +
                               " are read; this is no safetensors file, or a damaged one: fetch it again");
  }
  if (static_cast<std::int64_t>(json_bytes) > file_bytes - kLengthBytes) {
    return InvalidInput(std::string(path) + ": the file is cut short: its header takes " + std::to_string(json_bytes) +
                        " bytes, there are " + std::to_string(file_bytes - kLengthBytes) + "; fetch it again");
  }
  std::string json(static_cast<std::size_t>(json_bytes), '\0');
  DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t read,
                             file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(json))));
  if (read < json.size()) return IoError(std::string(path) + ": the file became shorter while it was read");
  return ParseHeader(json, file_bytes, path);
}

Result<Header> ReadHeader(FileSystem& file_system, const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, file_system.OpenForReading(path));
  return ReadHeader(*file, path);
}

Status ReadTensorBytes(ReadableFile& file, std::string_view path, const TensorInfo& tensor, std::span<std::byte> buffer,
                       std::int64_t skip_bytes) {
  const auto wanted = static_cast<std::int64_t>(buffer.size());
  DRAFTMILL_CHECK(skip_bytes >= 0 && wanted <= tensor.bytes - skip_bytes, "a read past the end of " + tensor.name);
  Result<std::size_t> read = file.ReadAt(tensor.offset + skip_bytes, buffer);
  if (!read.ok()) return read.status().WithContext(path);
  if (*read < buffer.size()) return IoError(std::string(path) + ": the file ends within tensor '" + tensor.name + "'");
  return OkStatus();
}

Result<BuiltHeader> BuildHeader(const std::vector<TensorSpec>& specs, const Metadata& metadata,
                                std::int64_t data_alignment) {
  DRAFTMILL_CHECK(data_alignment > 0 && data_alignment % 8 == 0, "data begins at a multiple of 8");
  DRAFTMILL_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, PlaceTensors(specs));
  DRAFTMILL_RETURN_IF_ERROR(CheckNames(tensors, metadata, "new file"));
  std::string json = HeaderJson(tensors, metadata);
  const auto unpadded = kLengthBytes + static_cast<std::int64_t>(json.size());
  const std::int64_t data_start = (unpadded + data_alignment - 1) / data_alignment * data_alignment;
  json.resize(static_cast<std::size_t>(data_start - kLengthBytes), ' ');
  if (static_cast<std::int64_t>(json.size()) > kMaxHeaderBytes)
    return InvalidInput("the header of a new file is too long");

  const std::uint64_t json_bytes = json.size();
  BuiltHeader built;
  built.bytes.resize(sizeof json_bytes);
  std::memcpy(built.bytes.data(), &json_bytes, sizeof json_bytes);
  built.bytes += json;
  for (TensorInfo& tensor : tensors) tensor.offset += data_start;
  const std::int64_t end = tensors.empty() ? data_start : tensors.back().offset + tensors.back().bytes;
  built.header = Header(std::move(tensors), metadata, data_start, end);
  return built;
}

}  // namespace draftmill::safetensors
