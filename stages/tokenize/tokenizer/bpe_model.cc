#include "stages/tokenize/tokenizer/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "stages/tokenize/tokenizer/unicode_properties.h"

namespace draftmill {
namespace {

/// Up to so many symbols, looking through all of them for the best merge is faster than a heap.
constexpr std::size_t kShortSymbols = 96;
constexpr std::uint32_t kNone = MergeTable::kNoRank;

std::string FallbackToken(unsigned byte) {
  std::array<char, 8> text{};
  const int length = std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

bool LaterCandidate(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
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
  drops_nothing_ = all_fallback_bytes_ || parts_.unknown_id >= 0;
}

std::int32_t BpeModel::CharacterId(std::string_view character, std::uint32_t code_point) const {
  return code_point < 128 ? ascii_ids_[code_point] : parts_.vocabulary.Find(character);
}

/// Character units: the order of unknown and fallback tokens is that of `tokenizers`, also where it is odd (fallback
/// bytes go before an unknown token that is still open for fusing).
void BpeModel::AppendCharacters(std::string_view piece, std::vector<BpeScratch::Symbol>& symbols) const {
  std::int64_t open_unknown_end = -1;
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
    const std::int32_t id = CharacterId(character, code_point);
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
    const bool fuses = parts_.fuse_unknown && id == parts_.unknown_id && !symbols.empty() &&
                       symbols.back().id == id && symbols.back().end == i;
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

/// The same result in n log n: candidates in a heap, symbols in a linked list; an outdated candidate no longer equals
/// what its symbol says of itself.
void BpeModel::MergeLong(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<BpeScratch::Link>& links = scratch.links;
  std::vector<BpeScratch::Candidate>& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  links.resize(count);
  heap.clear();
  const auto rate = [&](std::uint32_t i) {
    BpeScratch::Symbol& symbol = symbols[i];
    const std::uint32_t next = links[i].next;
    const MergeTable::Merge merge = next < count ? parts_.merges.Find(symbol.id, symbols[next].id) : MergeTable::Merge{};
    symbol.rank = merge.rank;
    symbol.merged = merge.id;
    return merge.rank != kNone;
  };
  for (std::uint32_t i = 0; i < count; ++i) links[i] = {i - 1, i + 1};
  for (std::uint32_t i = 0; i < count; ++i) {
    if (rate(i)) heap.push_back({symbols[i].rank, i, symbols[i].merged});
  }
  std::make_heap(heap.begin(), heap.end(), LaterCandidate);
  const auto rate_again = [&](std::uint32_t i) {
    if (!rate(i)) return;
    heap.push_back({symbols[i].rank, i, symbols[i].merged});
    std::push_heap(heap.begin(), heap.end(), LaterCandidate);
  };
  while (!heap.empty()) {
    const BpeScratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), LaterCandidate);
    heap.pop_back();
    BpeScratch::Symbol& symbol = symbols[top.position];
    if (symbol.rank != top.rank || symbol.merged != top.merged || symbol.id < 0) continue;
    const std::uint32_t gone = links[top.position].next;
    symbol.id = symbol.merged;
    symbol.end = symbols[gone].end;
    symbols[gone].id = -1;
    links[top.position].next = links[gone].next;
    if (links[gone].next < count) links[links[gone].next].previous = top.position;
    rate_again(top.position);
    if (links[top.position].previous < count) rate_again(links[top.position].previous);
  }
  symbols.erase(std::remove_if(symbols.begin(), symbols.end(), [](const auto& symbol) { return symbol.id < 0; }),
                symbols.end());
}

void BpeModel::Encode(std::string_view piece, BpeScratch& scratch, std::vector<BpeToken>& tokens) const {
  tokens.clear();
  if (parts_.ignore_merges && piece.size() <= parts_.vocabulary.longest_bytes()) {
    const std::int32_t id = parts_.vocabulary.Find(piece);
    if (id >= 0) {
      tokens.push_back({id, static_cast<std::uint32_t>(piece.size())});
      return;
    }
  }
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
