// The tokens of a vocabulary by content and by id.
//
// Filled once while a tokenizer is loaded, then const and safe from any thread. Contents are bytes, not characters: in
// a byte-level vocabulary they are the bytes of the text that a token stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace draftmill {

class TokenTable {
 public:
  /// Largest id that is accepted; it bounds the arrays that are indexed by id.
  static constexpr std::int32_t kMaxId = (1 << 24) - 1;

  enum class AddResult : std::uint8_t { kAdded, kContentTaken, kIdTaken };

  /// Makes room for about so many tokens and bytes.
  void Reserve(std::size_t tokens, std::size_t bytes);
  /// Adds a token; `id` is between 0 and kMaxId.
  AddResult Add(std::string_view content, std::int32_t id);

  /// The id of exactly this content, or -1.
  std::int32_t Find(std::string_view content) const;
  /// The content of an id; empty where there is none.
  std::string_view Content(std::int32_t id) const;
  bool Contains(std::int32_t id) const { return EntryOf(id) >= 0; }
  std::size_t size() const { return entries_.size(); }
  /// One more than the largest id.
  std::int32_t id_limit() const { return static_cast<std::int32_t>(entry_of_id_.size()); }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Entry {
    std::uint32_t offset;
    std::uint32_t length;
    std::int32_t id;
    std::uint32_t hash;
  };

  std::int32_t EntryOf(std::int32_t id) const {
    return id >= 0 && id < id_limit() ? entry_of_id_[static_cast<std::size_t>(id)] : -1;
  }
  std::string_view ContentOf(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.length);
  }
  void Rehash(std::size_t slots);

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> entry_of_id_;
  std::vector<std::int32_t> slots_;  // index into entries_, or -1; a power of two
  std::size_t longest_bytes_ = 0;
};

}  // namespace draftmill
