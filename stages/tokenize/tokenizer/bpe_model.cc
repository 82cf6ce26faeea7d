#include "stages/tokenize/tokenizer/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

/// Up to so many symbols, looking through all of them for the best merge is faster than keeping a queue.
constexpr std::size_t kShortSymbols = 64;
constexpr std::uint32_t kNone = MergeTable::kNoRank;

std::string FallbackToken(unsigned byte) {
  std::array<char, 8> text{};
  const int length = std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

}  // namespace

BpeModel::BpeModel(BpeParts parts) : parts_(std::move(parts)) {
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (parts_.byte_units) {
      byte_ids_[byte] = parts_.vocabulary.Find({&character, 1});
    } else if (parts_.byte_fallback) {
      byte_ids_[byte] = parts_.vocabulary.Find(FallbackToken(byte));
    }
    if (byte < 128) ascii_ids_[byte] = parts_.vocabulary.Find({&character, 1});
  }
  all_fallback_bytes_ = std::none_of(byte_ids_.begin(), byte_ids_.end(), [](std::int32_t id) { return id < 0; });
  parts_.merges.ForEach([&](std::int32_t, std::int32_t, const MergeTable::Merge& merge) {
    rank_limit_ = std::max(rank_limit_, merge.rank + 1);
  });
  if (all_fallback_bytes_ && MergesAreOfText()) boundaries_ = BoundaryTable(parts_.vocabulary);
}

/// True where every symbol that a merge joins stands for the text of its name: always with byte units; with character
/// units where no fallback byte merges. Then a border that no token's name crosses is crossed by no merge.
bool BpeModel::MergesAreOfText() const {
  if (parts_.byte_units) return true;
  bool result = true;
  parts_.merges.ForEach([&](std::int32_t left, std::int32_t right, const MergeTable::Merge& merge) {
    for (const std::int32_t id : {left, right, merge.id}) {
      const std::string_view name = parts_.vocabulary.Content(id);
      if (name.size() == 6 && name.substr(0, 3) == "<0x" && name.back() == '>') result = false;
    }
  });
  return result;
}

std::int32_t BpeModel::CharacterId(std::string_view character, std::uint32_t code_point) const {
  return code_point < 128 ? ascii_ids_[code_point] : parts_.vocabulary.Find(character);
}

/// Character units: the order of unknown and fallback tokens is that of `tokenizers`, also where it is odd (fallback
/// bytes go before an unknown token that is still open for fusing).
void BpeModel::AppendCharacters(std::string_view piece, std::vector<BpeScratch::Symbol>& symbols) const {
  std::int64_t open_unknown_end = -1;
  std::uint32_t last_code_point = kCodePointLimit;
  std::int32_t id = -1;
  const auto close_unknown = [&] {
    if (open_unknown_end < 0) return;
    symbols.push_back({parts_.unknown_id, static_cast<std::uint32_t>(open_unknown_end), kNone, -1});
    open_unknown_end = -1;
  };
  for (std::size_t at = 0; at < piece.size();) {
    unsigned length = 0;
    const std::uint32_t code_point = DecodeUtf8(piece, at, length);
    const std::string_view character = piece.substr(at, length);
    at += length;
    if (code_point != last_code_point) id = CharacterId(character, code_point);
    last_code_point = code_point;
    if (id >= 0) {
      close_unknown();
      symbols.push_back({id, static_cast<std::uint32_t>(at), kNone, -1});
      continue;
    }
    const bool fallback = parts_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
                            return byte_ids_[static_cast<std::uint8_t>(byte)] >= 0;
                          });
    if (fallback) {
      for (std::size_t i = 0; i < length; ++i) {
        const std::int32_t byte_id = byte_ids_[static_cast<std::uint8_t>(character[i])];
        symbols.push_back({byte_id, static_cast<std::uint32_t>(at - length + i + 1), kNone, -1});
      }
      continue;
    }
    if (parts_.unknown_id < 0) continue;
    if (!parts_.fuse_unknown) close_unknown();
    open_unknown_end = static_cast<std::int64_t>(at);
  }
  close_unknown();
}

void BpeModel::AppendUnits(std::string_view piece, std::vector<BpeScratch::Symbol>& symbols) const {
  if (!parts_.byte_units) return AppendCharacters(piece, symbols);
  for (std::size_t i = 0; i < piece.size(); ++i) {
    std::int32_t id = byte_ids_[static_cast<std::uint8_t>(piece[i])];
    if (id < 0) id = parts_.unknown_id;
    const auto end = static_cast<std::uint32_t>(i + 1);
    if (id < 0) continue;
    const bool fuses = parts_.fuse_unknown && id == parts_.unknown_id && !symbols.empty() && symbols.back().id == id &&
                       symbols.back().end == i;
    if (fuses) {
      symbols.back().end = end;
    } else {
      symbols.push_back({id, end, kNone, -1});
    }
  }
}

/// Merges the best pair until none is left, looking through all symbols each time.
void BpeModel::MergeShort(std::vector<BpeScratch::Symbol>& symbols) const {
  std::size_t count = symbols.size();
  const auto rate = [&](std::size_t i) {
    const MergeTable::Merge merge = parts_.merges.Find(symbols[i].id, symbols[i + 1].id);
    symbols[i].rank = merge.rank;
    symbols[i].merged = merge.id;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) rate(i);
  symbols[count - 1].rank = kNone;
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNone) break;
    symbols[best].id = symbols[best].merged;
    symbols[best].end = symbols[best + 1].end;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --count;
    if (best + 1 < count) {
      rate(best);
    } else {
      symbols[best].rank = kNone;
    }
    if (best > 0) rate(best - 1);
  }
}

void BpeModel::PrepareBuckets(BpeScratch& scratch) const {
  if (scratch.bucket_of_rank.size() < rank_limit_) scratch.bucket_of_rank.assign(rank_limit_, -1);
  for (const std::uint32_t rank : scratch.used_ranks) {
    BpeScratch::Bucket& bucket = scratch.buckets[static_cast<std::size_t>(scratch.bucket_of_rank[rank])];
    bucket.positions.clear();
    bucket.done = 0;
    bucket.sorted = true;
    bucket.waiting = false;
    scratch.bucket_of_rank[rank] = -1;
  }
  scratch.used_ranks.clear();
  scratch.queue.clear();
}

/// Looks up the merge of the symbol at `position` with the next one and notes it in the bucket of its rank.
void BpeModel::RateLong(BpeScratch& scratch, std::uint32_t position) const {
  BpeScratch::Symbol& symbol = scratch.symbols[position];
  const std::uint32_t next = scratch.links[position].next;
  MergeTable::Merge merge;
  if (next < scratch.symbols.size()) {
    const std::int32_t right = scratch.symbols[next].id;
    if (symbol.id != scratch.last_left || right != scratch.last_right) {
      scratch.last_left = symbol.id;
      scratch.last_right = right;
      scratch.last_merge = parts_.merges.Find(symbol.id, right);
    }
    merge = scratch.last_merge;
  }
  symbol.rank = merge.rank;
  symbol.merged = merge.id;
  if (merge.rank == kNone) return;
  std::int32_t& index = scratch.bucket_of_rank[merge.rank];
  if (index < 0) {
    index = static_cast<std::int32_t>(scratch.used_ranks.size());
    scratch.used_ranks.push_back(merge.rank);
    if (scratch.buckets.size() < scratch.used_ranks.size()) scratch.buckets.emplace_back();
  }
  BpeScratch::Bucket& bucket = scratch.buckets[static_cast<std::size_t>(index)];
  if (bucket.positions.size() > bucket.done && bucket.positions.back() > position) bucket.sorted = false;
  bucket.positions.push_back(position);
  if (bucket.waiting) return;
  bucket.waiting = true;
  scratch.queue.push_back(merge.rank);
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

/// Does the merges of one rank from left to right; returns early, false, where a merge made a better one possible.
bool BpeModel::MergeBucket(BpeScratch& scratch, std::uint32_t rank) const {
  const auto index = static_cast<std::size_t>(scratch.bucket_of_rank[rank]);
  const auto count = static_cast<std::uint32_t>(scratch.symbols.size());
  if (!scratch.buckets[index].sorted) {
    std::vector<std::uint32_t>& positions = scratch.buckets[index].positions;
    std::sort(positions.begin() + static_cast<std::ptrdiff_t>(scratch.buckets[index].done), positions.end());
    scratch.buckets[index].sorted = true;
  }
  // RateLong may add buckets, so the bucket is looked up again each time.
  while (scratch.buckets[index].done < scratch.buckets[index].positions.size()) {
    const std::uint32_t position = scratch.buckets[index].positions[scratch.buckets[index].done++];
    BpeScratch::Symbol& symbol = scratch.symbols[position];
    if (symbol.id < 0 || symbol.rank != rank) continue;
    BpeScratch::Link& link = scratch.links[position];
    const std::uint32_t gone = link.next;
    symbol.id = symbol.merged;
    symbol.end = scratch.symbols[gone].end;
    scratch.symbols[gone].id = -1;
    link.next = scratch.links[gone].next;
    if (link.next < count) scratch.links[link.next].previous = position;
    RateLong(scratch, position);
    if (link.previous < count) RateLong(scratch, link.previous);
    if (!scratch.queue.empty() && scratch.queue.front() < rank) return false;
  }
  return true;
}

/// The same result for long pieces in nearly linear time: the places of equal rank wait together in a bucket, and only
/// the ranks stand in a heap. An outdated place no longer has the rank of its bucket.
void BpeModel::MergeLong(BpeScratch& scratch) const {
  const auto count = static_cast<std::uint32_t>(scratch.symbols.size());
  PrepareBuckets(scratch);
  scratch.links.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) scratch.links[i] = {i - 1, i + 1};
  for (std::uint32_t i = 0; i < count; ++i) RateLong(scratch, i);
  while (!scratch.queue.empty()) {
    const std::uint32_t rank = scratch.queue.front();
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
    scratch.queue.pop_back();
    scratch.buckets[static_cast<std::size_t>(scratch.bucket_of_rank[rank])].waiting = false;
    if (MergeBucket(scratch, rank)) continue;
    scratch.buckets[static_cast<std::size_t>(scratch.bucket_of_rank[rank])].waiting = true;
    scratch.queue.push_back(rank);
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
  }
  scratch.symbols.erase(std::remove_if(scratch.symbols.begin(), scratch.symbols.end(),
                                       [](const BpeScratch::Symbol& symbol) { return symbol.id < 0; }),
                        scratch.symbols.end());
}

bool BpeModel::FindWhole(std::string_view piece, BpeToken& token) const {
  if (!parts_.ignore_merges || piece.size() > parts_.vocabulary.longest_bytes()) return false;
  token = {parts_.vocabulary.Find(piece), static_cast<std::uint32_t>(piece.size())};
  return token.id >= 0;
}

void BpeModel::Encode(std::string_view piece, BpeScratch& scratch, std::vector<BpeToken>& tokens) const {
  tokens.clear();
  scratch.symbols.clear();
  AppendUnits(piece, scratch.symbols);
  if (scratch.symbols.size() > kShortSymbols) {
    MergeLong(scratch);
  } else if (scratch.symbols.size() > 1) {
    MergeShort(scratch.symbols);
  }
  tokens.reserve(scratch.symbols.size());
  for (const BpeScratch::Symbol& symbol : scratch.symbols) tokens.push_back({symbol.id, symbol.end});
}

}  // namespace draftmill
