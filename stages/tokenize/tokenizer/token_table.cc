#include "stages/tokenize/tokenizer/token_table.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace draftmill {
namespace {

std::uint32_t HashOf(std::string_view content) { return static_cast<std::uint32_t>(HashBytes64(content)); }

}  // namespace

void TokenTable::Reserve(std::size_t tokens, std::size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(tokens);
  entry_of_id_.reserve(tokens);
  Rehash(std::bit_ceil(tokens * 2 + 16));
}

void TokenTable::Rehash(std::size_t slots) {
  slots_.assign(slots, -1);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & (slots - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots - 1);
    slots_[slot] = static_cast<std::int32_t>(i);
  }
}

TokenTable::AddResult TokenTable::Add(std::string_view content, std::int32_t id) {
  if (Contains(id)) return AddResult::kIdTaken;
  if (slots_.size() < entries_.size() * 2 + 16) Rehash(std::bit_ceil(entries_.size() * 4 + 16));
  const std::uint32_t hash = HashOf(content);
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& other = entries_[static_cast<std::size_t>(slots_[slot])];
    if (other.hash == hash && ContentOf(other) == content) return AddResult::kContentTaken;
  }
  const auto index = static_cast<std::int32_t>(entries_.size());
  slots_[slot] = index;
  entries_.push_back({static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(content.size()), id, hash});
  bytes_.append(content);
  if (id >= id_limit()) entry_of_id_.resize(static_cast<std::size_t>(id) + 1, -1);
  entry_of_id_[static_cast<std::size_t>(id)] = index;
  longest_bytes_ = std::max(longest_bytes_, content.size());
  return AddResult::kAdded;
}

std::int32_t TokenTable::Find(std::string_view content) const {
  if (slots_.empty()) return -1;
  const std::uint32_t hash = HashOf(content);
  for (std::size_t slot = hash & (slots_.size() - 1); slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& entry = entries_[static_cast<std::size_t>(slots_[slot])];
    if (entry.hash == hash && ContentOf(entry) == content) return entry.id;
  }
  return -1;
}

std::string_view TokenTable::Content(std::int32_t id) const {
  const std::int32_t index = EntryOf(id);
  return index < 0 ? std::string_view() : ContentOf(entries_[static_cast<std::size_t>(index)]);
}

}  // namespace draftmill
