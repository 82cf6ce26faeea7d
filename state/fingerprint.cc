#include "state/fingerprint.h"

#include <algorithm>
#include <utility>

namespace draftmill {
namespace {

const FingerprintPart* FindPart(const Fingerprint& fingerprint, std::string_view name) {
  for (const FingerprintPart& part : fingerprint.parts()) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

void AppendCounted(std::string_view text, std::string& out) {
  out += std::to_string(text.size());
  out += ':';
  out += text;
}

/// A value as it stands in a message: one line of bounded length.
std::string Shorten(const std::string& value) {
  constexpr std::size_t kLongest = 120;
  if (value.size() <= kLongest) return value;
  std::size_t cut = kLongest;
  // Never within a UTF-8 sequence.
  while (cut > 0 && (static_cast<unsigned char>(value[cut]) & 0xc0) == 0x80) --cut;
  return value.substr(0, cut) + "...";
}

}  // namespace

void Fingerprint::Add(std::string name, std::string value) {
  DRAFTMILL_CHECK(FindPart(*this, name) == nullptr, "fingerprint part added twice: " + name);
  parts_.push_back({std::move(name), std::move(value)});
}

bool Fingerprint::Has(std::string_view name) const { return FindPart(*this, name) != nullptr; }

std::string Fingerprint::hash() const {
  std::vector<const FingerprintPart*> sorted;
  sorted.reserve(parts_.size());
  for (const FingerprintPart& part : parts_) sorted.push_back(&part);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string canonical;
  for (const FingerprintPart* part : sorted) {
    AppendCounted(part->name, canonical);
    AppendCounted(part->value, canonical);
  }
  return ToHex(HashBytes128(canonical));
}

std::vector<FingerprintChange> Diff(const Fingerprint& old_fingerprint, const Fingerprint& new_fingerprint) {
  std::vector<FingerprintChange> changes;
  for (const FingerprintPart& part : old_fingerprint.parts()) {
    const FingerprintPart* now = FindPart(new_fingerprint, part.name);
    if (now == nullptr) {
      changes.push_back({FingerprintChange::Kind::kRemoved, part.name, part.value, ""});
    } else if (now->value != part.value) {
      changes.push_back({FingerprintChange::Kind::kChanged, part.name, part.value, now->value});
    }
  }
  for (const FingerprintPart& part : new_fingerprint.parts()) {
    if (FindPart(old_fingerprint, part.name) == nullptr) {
      changes.push_back({FingerprintChange::Kind::kAdded, part.name, "", part.value});
    }
  }
  return changes;
}

std::string ToString(const FingerprintChange& change) {
  switch (change.kind) {
    case FingerprintChange::Kind::kAdded: return change.name + ": added, " + Shorten(change.new_value);
    case FingerprintChange::Kind::kRemoved: return change.name + ": removed, was " + Shorten(change.old_value);
    case FingerprintChange::Kind::kChanged: break;
  }
  return change.name + ": " + Shorten(change.old_value) + " -> " + Shorten(change.new_value);
}

Result<FileDigest> HashFile(FileSystem& files, const std::string& path) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  DRAFTMILL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenForReading(path));
  StreamingHash hash;
  std::vector<std::byte> piece(kPieceBytes);
  std::int64_t offset = 0;
  for (;;) {
    DRAFTMILL_ASSIGN_OR_RETURN(const std::size_t count, file->ReadAt(offset, piece));
    hash.Update(std::span<const std::byte>(piece).first(count));
    offset += static_cast<std::int64_t>(count);
    if (count < piece.size()) break;
  }
  return FileDigest{.hash = hash.Digest128(), .bytes = offset};
}

}  // namespace draftmill
