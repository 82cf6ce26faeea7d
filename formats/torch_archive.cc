#include "formats/torch_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include "base/hash.h"
#include "formats/torch_pickle.h"

namespace draftmill::torch_archive {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kExtraHeaderBytes = 4;
constexpr std::int64_t kZip64Bytes = 16;           // both sizes
constexpr std::int64_t kZip64DirectoryBytes = 24;  // and the offset
constexpr std::uint64_t kZip64ExtraId = 1;
/// "FB": the id of torch's own padding field.
constexpr std::uint64_t kPaddingExtraId = 0x4246;
constexpr std::uint64_t kVersionPlain = 20;
constexpr std::uint64_t kVersionZip64 = 45;
constexpr std::uint64_t kUtf8NamesFlag = 0x0800;
/// 1980-01-01 00:00, the earliest that a zip file can say: bytes depend on no clock.
constexpr std::uint64_t kTimeAndDate = 0x00210000;

class Bytes {
 public:
  Bytes& Put(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) text_ += static_cast<char>((value >> (8 * i)) & 0xFFU);
    return *this;
  }
  Bytes& Put(std::int64_t value, int count) { return Put(static_cast<std::uint64_t>(value), count); }
  Bytes& Put(std::string_view text) {
    text_ += text;
    return *this;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

std::uint32_t Crc32(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));  // NOLINT: zlib's type
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::int64_t Tensor::bytes() const { return elements() * safetensors::DtypeBits(dtype) / 8; }

Dict& Dict::Add(Value key, Value value) {
  entries.emplace_back(std::move(key), std::move(value));
  return *this;
}

Result<Layout> Layout::Of(const Value& value, std::int64_t zip64_from) {
  std::vector<Tensor> tensors;
  DRAFTMILL_ASSIGN_OR_RETURN(std::string pickle, PickleOf(value, tensors));
  Layout layout;
  layout.zip64_from_ = zip64_from;
  const auto place_text = [&](const std::string& name, std::string content) {
    const auto bytes = static_cast<std::int64_t>(content.size());
    layout.Place({.name = "archive/" + name, .content = std::move(content), .bytes = bytes});
  };
  place_text("data.pkl", std::move(pickle));
  place_text("byteorder", "little");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    layout.storages_.push_back(layout.records_.size());
    layout.Place({.name = "archive/data/" + std::to_string(i), .content = {}, .bytes = tensors[i].bytes()});
  }
  place_text("version", "3\n");
  // torch puts forty digits here that tell archives apart; these follow from the pickle.
  place_text(".data/serialization_id", fmt::format("{:040}", HashBytes64(layout.records_.front().content)));
  layout.directory_offset_ = layout.file_bytes_;
  layout.has_zip64_ = layout.IsLarge(layout.directory_offset_);
  for (const Record& record : layout.records_) {
    layout.has_zip64_ = layout.has_zip64_ || layout.IsLarge(record.bytes) || layout.IsLarge(record.header_offset);
    layout.directory_bytes_ += static_cast<std::int64_t>(layout.DirectoryEntry(record, 0).size());
  }
  layout.file_bytes_ += layout.directory_bytes_ + static_cast<std::int64_t>(layout.EndOfDirectory().size());
  return layout;
}

std::int64_t Layout::Zip64ExtraBytes(std::int64_t bytes) const {
  return IsLarge(bytes) ? kExtraHeaderBytes + kZip64Bytes : 0;
}

void Layout::Place(Record record) {
  record.header_offset = file_bytes_;
  // The padding is an extra field, which has a header of its own.
  const std::int64_t least = record.header_offset + kLocalHeaderBytes + static_cast<std::int64_t>(record.name.size()) +
                             Zip64ExtraBytes(record.bytes) + kExtraHeaderBytes;
  record.data_offset = (least + kAlignment - 1) / kAlignment * kAlignment;
  file_bytes_ = record.data_offset + record.bytes;
  records_.push_back(std::move(record));
}

std::int64_t Layout::storage_offset(std::size_t storage) const { return records_[storages_[storage]].data_offset; }
std::int64_t Layout::storage_bytes(std::size_t storage) const { return records_[storages_[storage]].bytes; }

std::string Layout::LocalHeader(const Record& record, std::uint64_t crc) const {
  const bool is_large = IsLarge(record.bytes);
  const std::int64_t extra =
      record.data_offset - record.header_offset - kLocalHeaderBytes - static_cast<std::int64_t>(record.name.size());
  const std::int64_t padding = extra - Zip64ExtraBytes(record.bytes) - kExtraHeaderBytes;
  Bytes header;
  header.Put("PK\x03\x04").Put(is_large ? kVersionZip64 : kVersionPlain, 2).Put(kUtf8NamesFlag, 2);
  header.Put(std::uint64_t{0}, 2).Put(kTimeAndDate, 4).Put(crc, 4);
  header.Put(Clipped(record.bytes), 4).Put(Clipped(record.bytes), 4);
  header.Put(static_cast<std::uint64_t>(record.name.size()), 2).Put(extra, 2).Put(record.name);
  if (is_large) header.Put(kZip64ExtraId, 2).Put(kZip64Bytes, 2).Put(record.bytes, 8).Put(record.bytes, 8);
  header.Put(kPaddingExtraId, 2).Put(padding, 2).Put(std::string(static_cast<std::size_t>(padding), 'Z'));
  return header.Take();
}

std::string Layout::DirectoryEntry(const Record& record, std::uint64_t crc) const {
  // The three numbers move together, so that the field has one form.
  const bool moves = IsLarge(record.bytes) || IsLarge(record.header_offset);
  const std::uint64_t version = moves ? kVersionZip64 : kVersionPlain;
  Bytes entry;
  entry.Put("PK\x01\x02").Put(version, 2).Put(version, 2).Put(kUtf8NamesFlag, 2);
  entry.Put(std::uint64_t{0}, 2).Put(kTimeAndDate, 4).Put(crc, 4);
  entry.Put(moves ? kZip64Limit : record.bytes, 4).Put(moves ? kZip64Limit : record.bytes, 4);
  entry.Put(static_cast<std::uint64_t>(record.name.size()), 2);
  entry.Put(moves ? kExtraHeaderBytes + kZip64DirectoryBytes : 0, 2);
  entry.Put(std::uint64_t{0}, 2).Put(std::uint64_t{0}, 2).Put(std::uint64_t{0}, 2).Put(std::uint64_t{0}, 4);
  entry.Put(moves ? kZip64Limit : record.header_offset, 4).Put(record.name);
  if (moves) {
    entry.Put(kZip64ExtraId, 2).Put(kZip64DirectoryBytes, 2);
    entry.Put(record.bytes, 8).Put(record.bytes, 8).Put(record.header_offset, 8);
  }
  return entry.Take();
}

std::string Layout::EndOfDirectory() const {
  const auto count = static_cast<std::uint64_t>(records_.size());
  Bytes end;
  if (has_zip64_) {
    end.Put("PK\x06\x06").Put(std::uint64_t{44}, 8).Put(kVersionZip64, 2).Put(kVersionZip64, 2);
    end.Put(std::uint64_t{0}, 4).Put(std::uint64_t{0}, 4).Put(count, 8).Put(count, 8);
    end.Put(directory_bytes_, 8).Put(directory_offset_, 8);
    end.Put("PK\x06\x07")
        .Put(std::uint64_t{0}, 4)
        .Put(directory_offset_ + directory_bytes_, 8)
        .Put(std::uint64_t{1}, 4);
  }
  end.Put("PK\x05\x06").Put(std::uint64_t{0}, 2).Put(std::uint64_t{0}, 2).Put(count, 2).Put(count, 2);
  end.Put(Clipped(directory_bytes_), 4).Put(Clipped(directory_offset_), 4).Put(std::uint64_t{0}, 2);
  return end.Take();
}

std::vector<FramePiece> Layout::Frame(std::span<const std::uint32_t> crc32) const {
  DRAFTMILL_CHECK(crc32.size() == storages_.size(), "one CRC for each storage");
  std::vector<FramePiece> pieces;
  std::string directory;
  std::size_t storage = 0;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const bool is_storage = storage < storages_.size() && storages_[storage] == i;
    const std::uint64_t crc = is_storage ? crc32[storage++] : Crc32(record.content);
    pieces.push_back({record.header_offset, LocalHeader(record, crc) + record.content});
    directory += DirectoryEntry(record, crc);
  }
  pieces.push_back({directory_offset_, directory + EndOfDirectory()});
  return pieces;
}

Result<std::string> BuildArchive(const Value& value, const std::vector<std::span<const std::byte>>& storages) {
  DRAFTMILL_ASSIGN_OR_RETURN(const Layout layout, Layout::Of(value));
  DRAFTMILL_CHECK(storages.size() == layout.storages(), "bytes for each tensor");
  std::string file(static_cast<std::size_t>(layout.file_bytes()), '\0');
  std::vector<std::uint32_t> crc32;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    DRAFTMILL_CHECK(static_cast<std::int64_t>(storages[i].size()) == layout.storage_bytes(i), "the bytes of a tensor");
    const std::string_view bytes(reinterpret_cast<const char*>(storages[i].data()),
                                 storages[i].size());  // NOLINT: bytes as text
    file.replace(static_cast<std::size_t>(layout.storage_offset(i)), bytes.size(), bytes);
    crc32.push_back(Crc32(bytes));
  }
  for (const FramePiece& piece : layout.Frame(crc32)) {
    file.replace(static_cast<std::size_t>(piece.offset), piece.bytes.size(), piece.bytes);
  }
  return file;
}

}  // namespace draftmill::torch_archive
