#include "formats/arrow_stream.h"

#include <cstring>

#include "base/status.h"
#include "formats/flat_buffer.h"

namespace draftmill {
namespace {

// Numbers of Schema.fbs and Message.fbs.
constexpr std::uint64_t kMetadataV5 = 4;
constexpr std::uint64_t kTypeInt = 2;
constexpr std::uint64_t kTypeList = 12;
constexpr std::uint64_t kHeaderSchema = 1;
constexpr std::uint64_t kHeaderRecordBatch = 3;
constexpr std::size_t kAlignment = 8;

std::size_t Padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void AppendNumber(std::uint32_t value, std::string& out) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

/// A message around a header table that was made in `buffer`.
std::string Message(FlatBuffer& buffer, FlatBuffer::Place header, std::uint64_t header_type, const std::string& body) {
  buffer.BeginTable();
  buffer.AddNumber(3, body.size(), 8);
  buffer.AddPlace(2, header);
  buffer.AddNumber(0, kMetadataV5, 2);
  buffer.AddNumber(1, header_type, 1);
  std::string metadata = buffer.Finish(buffer.EndTable());
  metadata.resize(Padded(metadata.size()), '\0');
  std::string message;
  AppendNumber(0xFFFFFFFFU, message);
  AppendNumber(static_cast<std::uint32_t>(metadata.size()), message);
  return message + metadata + body;
}

FlatBuffer::Place FieldTable(FlatBuffer& buffer, const std::string& name, std::uint64_t type_number,
                             FlatBuffer::Place type, const std::vector<FlatBuffer::Place>& children) {
  const FlatBuffer::Place name_place = buffer.Text(name);
  const FlatBuffer::Place children_place = buffer.Vector(children);
  buffer.BeginTable();
  buffer.AddPlace(0, name_place);
  buffer.AddPlace(3, type);
  buffer.AddPlace(5, children_place);
  buffer.AddNumber(1, 1, 1);  // nullable, as everything that pyarrow makes
  buffer.AddNumber(2, type_number, 1);
  return buffer.EndTable();
}

FlatBuffer::Place Int64Field(FlatBuffer& buffer, const std::string& name) {
  buffer.BeginTable();
  buffer.AddNumber(0, 64, 4);
  buffer.AddNumber(1, 1, 1);
  const FlatBuffer::Place type = buffer.EndTable();
  return FieldTable(buffer, name, kTypeInt, type, {});
}

FlatBuffer::Place Field(FlatBuffer& buffer, const ArrowField& field) {
  if (field.type == ArrowType::kInt64) return Int64Field(buffer, field.name);
  const FlatBuffer::Place item = Int64Field(buffer, "item");
  buffer.BeginTable();
  const FlatBuffer::Place type = buffer.EndTable();
  return FieldTable(buffer, field.name, kTypeList, type, {item});
}

/// The body of a record batch with the tables that describe it.
struct Body {
  std::vector<std::pair<std::int64_t, std::int64_t>> nodes;    ///< rows and nulls
  std::vector<std::pair<std::int64_t, std::int64_t>> buffers;  ///< offset and bytes
  std::string bytes;

  template <typename T>
  void AddBuffer(std::span<const T> values) {
    buffers.emplace_back(bytes.size(), values.size_bytes());
    const std::size_t begin = bytes.size();
    bytes.resize(begin + Padded(values.size_bytes()), '\0');
    if (!values.empty()) std::memcpy(bytes.data() + begin, values.data(), values.size_bytes());
  }
  void AddNumbers(std::span<const std::int64_t> values) {
    nodes.emplace_back(values.size(), 0);
    buffers.emplace_back(bytes.size(), 0);  // no validity bitmap: there are no nulls
    AddBuffer(values);
  }
};

}  // namespace

std::string ArrowStream::Begin() const {
  FlatBuffer buffer;
  std::vector<FlatBuffer::Place> fields;
  for (const ArrowField& field : fields_) fields.push_back(Field(buffer, field));
  std::vector<FlatBuffer::Place> entries;
  for (const auto& [key, value] : metadata_) {
    const FlatBuffer::Place key_place = buffer.Text(key);
    const FlatBuffer::Place value_place = buffer.Text(value);
    buffer.BeginTable();
    buffer.AddPlace(0, key_place);
    buffer.AddPlace(1, value_place);
    entries.push_back(buffer.EndTable());
  }
  const FlatBuffer::Place fields_place = buffer.Vector(fields);
  const FlatBuffer::Place entries_place = buffer.Vector(entries);
  buffer.BeginTable();
  buffer.AddPlace(1, fields_place);
  buffer.AddPlace(2, entries_place);
  const FlatBuffer::Place schema = buffer.EndTable();
  return Message(buffer, schema, kHeaderSchema, "");
}

std::string ArrowStream::Batch(const std::vector<ArrowColumn>& columns) const {
  DRAFTMILL_CHECK(columns.size() == fields_.size(), "a column for each field");
  Body body;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const ArrowColumn& column = columns[i];
    const bool is_list = fields_[i].type == ArrowType::kInt64List;
    rows = is_list ? column.offsets.size() - 1 : column.values.size();
    if (is_list) {
      body.nodes.emplace_back(rows, 0);
      body.buffers.emplace_back(body.bytes.size(), 0);
      body.AddBuffer(column.offsets);
    }
    body.AddNumbers(column.values);
  }
  FlatBuffer buffer;
  const FlatBuffer::Place nodes = buffer.Vector(body.nodes);
  const FlatBuffer::Place buffers = buffer.Vector(body.buffers);
  buffer.BeginTable();
  buffer.AddNumber(0, rows, 8);
  buffer.AddPlace(1, nodes);
  buffer.AddPlace(2, buffers);
  const FlatBuffer::Place batch = buffer.EndTable();
  return Message(buffer, batch, kHeaderRecordBatch, body.bytes);
}

std::string ArrowStream::End() const {
  std::string end;
  AppendNumber(0xFFFFFFFFU, end);
  AppendNumber(0, end);
  return end;
}

}  // namespace draftmill
