// Arrow IPC streams as `datasets` keeps its tables: columns of int64 and of lists of int64, without nulls, without
// compression, written by hand.
//
//   ArrowStream stream({{"input_ids", ArrowType::kInt64List}, {"seq_len", ArrowType::kInt64}}, {{"huggingface", json}});
//   file += stream.Begin();
//   file += stream.Batch({ArrowColumn::Lists(offsets, values), ArrowColumn::Numbers(lengths)});
//   file += stream.End();
//
// A stream is messages: 0xFFFFFFFF, the length of the metadata, the metadata (a flatbuffer of Message.fbs), padding to a
// multiple of eight, the body. First the schema, then record batches, then 0xFFFFFFFF and 0 (docs/formats.md, "Arrow
// stream"). Source: arrow.apache.org/docs/format/Columnar.html and format/{Message,Schema}.fbs, metadata version V5.
//
// Plain values, one thread at a time. The bytes are a function of the arguments alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace draftmill {

enum class ArrowType : std::uint8_t { kInt64, kInt64List };

struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::kInt64;
};

/// One column of a batch. `offsets` has one entry more than there are rows, and is empty for numbers.
struct ArrowColumn {
  std::span<const std::int32_t> offsets{};
  std::span<const std::int64_t> values{};

  static ArrowColumn Numbers(std::span<const std::int64_t> values) { return {{}, values}; }
  static ArrowColumn Lists(std::span<const std::int32_t> offsets, std::span<const std::int64_t> values) {
    return {offsets, values};
  }
};

class ArrowStream {
 public:
  ArrowStream(std::vector<ArrowField> fields, std::vector<std::pair<std::string, std::string>> metadata)
      : fields_(std::move(fields)), metadata_(std::move(metadata)) {}

  std::string Begin() const;
  /// One record batch; the columns in the order of the fields, all of the same number of rows.
  std::string Batch(const std::vector<ArrowColumn>& columns) const;
  std::string End() const;

 private:
  std::vector<ArrowField> fields_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace draftmill
