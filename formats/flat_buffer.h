// Flatbuffers, as much of them as Arrow's messages need: tables, strings, vectors of tables and of structs.
//
//   FlatBuffer buffer;
//   const FlatBuffer::Place name = buffer.Text("input_ids");
//   buffer.BeginTable();
//   buffer.AddPlace(0, name);
//   buffer.AddNumber(2, 12, 1);
//   std::string bytes = buffer.Finish(buffer.EndTable());
//
// A buffer is built from its end to its beginning, so what a table refers to is made before it. A place counts bytes from
// the end. Source: flatbuffers.dev, "FlatBuffer internals". One thread at a time; calls in the wrong order are bugs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace draftmill {

class FlatBuffer {
 public:
  using Place = std::uint32_t;

  Place Text(std::string_view text) {
    Align(4, static_cast<std::int64_t>(text.size()) + 1);
    Push(std::string_view("\0", 1));
    Push(text);
    return PushNumber(text.size(), 4);
  }

  /// Of tables.
  Place Vector(const std::vector<Place>& places) {
    Align(4, static_cast<std::int64_t>(4 * places.size()));
    for (auto place = places.rbegin(); place != places.rend(); ++place) PushReference(*place);
    return PushNumber(places.size(), 4);
  }

  /// Of structs of two int64.
  Place Vector(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
    Align(8, static_cast<std::int64_t>(16 * pairs.size()));
    for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
      PushNumber(static_cast<std::uint64_t>(pair->second), 8);
      PushNumber(static_cast<std::uint64_t>(pair->first), 8);
    }
    return PushNumber(pairs.size(), 4);
  }

  void BeginTable() {
    table_begin_ = Size();
    fields_.clear();
  }
  /// A number of so many bytes as the field of that index.
  void AddNumber(std::size_t field, std::uint64_t value, int bytes) {
    Align(bytes, 0);
    Remember(field, PushNumber(value, bytes));
  }
  void AddPlace(std::size_t field, Place place) {
    Align(4, 0);
    Remember(field, PushReference(place));
  }
  Place EndTable() {
    Align(4, 0);
    const Place table = PushNumber(0, 4);  // becomes the distance to the vtable
    const std::size_t count = fields_.size();
    for (std::size_t i = count; i-- > 0;) PushNumber(fields_[i] == 0 ? 0 : table - fields_[i], 2);
    PushNumber(table - table_begin_, 2);
    const Place vtable = PushNumber(4 + 2 * count, 2);
    Overwrite(table, vtable - table);
    return table;
  }

  /// The buffer with this table as its root.
  std::string Finish(Place root) {
    Align(8, 4);
    PushReference(root);
    return {reversed_.rbegin(), reversed_.rend()};
  }

 private:
  Place Size() const { return static_cast<Place>(reversed_.size()); }

  /// Pads so that what begins after `more` further bytes is aligned.
  void Align(std::int64_t alignment, std::int64_t more) {
    while ((static_cast<std::int64_t>(reversed_.size()) + more) % alignment != 0) reversed_ += '\0';
  }
  void Push(std::string_view bytes) { reversed_.append(bytes.rbegin(), bytes.rend()); }
  Place PushNumber(std::uint64_t value, int bytes) {
    for (int i = bytes; i-- > 0;) reversed_ += static_cast<char>((value >> (8 * i)) & 0xFFU);
    return Size();
  }
  /// The distance from here to a place further behind.
  Place PushReference(Place place) { return PushNumber(Size() + 4 - place, 4); }
  void Remember(std::size_t field, Place place) {
    fields_.resize(std::max(fields_.size(), field + 1));
    fields_[field] = place;
  }
  void Overwrite(Place place, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) reversed_[place - 1 - i] = static_cast<char>((value >> (8 * i)) & 0xFFU);
  }

  std::string reversed_;       // the buffer's bytes, the last one first
  std::vector<Place> fields_;  // of the open table; 0 where a field is absent
  Place table_begin_ = 0;
};

}  // namespace draftmill
