#include "formats/manifest.h"

#include <string_view>
#include <utility>

namespace draftmill {
namespace {

constexpr std::string_view kFormatName = "draftmill.manifest";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::string_view kDiscardedKey = "discarded_shards";

json::Object FileObject(const PublishedFile& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"digest", ToHex(file.digest)}};
}

json::Value EntryList(const std::vector<ManifestEntry>& entries) {
  json::Array list;
  for (const ManifestEntry& entry : entries) {
    json::Object object = FileObject(entry.file);
    object.emplace_back("samples", entry.samples);
    object.emplace_back("tokens", entry.tokens);
    object.emplace_back("quarantined", entry.quarantined);
    list.emplace_back(std::move(object));
  }
  return list;
}

// Sums for people and for a quick comparison; they follow from the lists.
json::Object Totals(const Manifest& manifest) {
  std::int64_t samples = 0, tokens = 0, quarantined = 0, bytes = 0;
  for (const ManifestEntry& shard : manifest.shards) {
    samples += shard.samples;
    tokens += shard.tokens;
    quarantined += shard.quarantined;
    bytes += shard.file.bytes;
  }
  return {{"samples", samples},
          {"tokens", tokens},
          {"quarantined", quarantined},
          {"shards", static_cast<std::int64_t>(manifest.shards.size())},
          {"shard_bytes", bytes}};
}

Result<std::int64_t> NumberOf(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  if (value == nullptr || !value->is_integer() || value->as_integer() < 0) {
    return Corrupt("'" + std::string(key) + "' is no whole number from 0");
  }
  return value->as_integer();
}

Result<std::string> TextOf(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  if (value == nullptr || !value->is_string()) return Corrupt("'" + std::string(key) + "' is no text");
  return value->as_string();
}

/// A manifest may come from anybody: what it lists lies in its folder.
bool StaysInside(std::string_view path) {
  const std::string in_slashes = "/" + std::string(path) + "/";
  return in_slashes.find("/../") == std::string::npos && in_slashes.find("//") == std::string::npos &&
         path.find('\0') == std::string_view::npos;
}

Result<PublishedFile> FileOf(const json::Value& object) {
  PublishedFile file;
  DRAFTMILL_ASSIGN_OR_RETURN(file.path, TextOf(object, "path"));
  if (!StaysInside(file.path)) return Corrupt("'path' leads out of the work folder: '" + file.path + "'");
  DRAFTMILL_ASSIGN_OR_RETURN(file.bytes, NumberOf(object, "bytes"));
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string digest, TextOf(object, "digest"));
  Result<Hash128> hash = Hash128FromHex(digest);
  if (!hash.ok()) return Corrupt(hash.status().message());
  file.digest = *hash;
  return file;
}

Result<ManifestEntry> EntryOf(const json::Value& object) {
  ManifestEntry entry;
  DRAFTMILL_ASSIGN_OR_RETURN(entry.file, FileOf(object));
  DRAFTMILL_ASSIGN_OR_RETURN(entry.samples, NumberOf(object, "samples"));
  DRAFTMILL_ASSIGN_OR_RETURN(entry.tokens, NumberOf(object, "tokens"));
  DRAFTMILL_ASSIGN_OR_RETURN(entry.quarantined, NumberOf(object, "quarantined"));
  return entry;
}

template <typename T>
Result<std::vector<T>> ListOf(const json::Value& root, std::string_view key, Result<T> (*read)(const json::Value&)) {
  const json::Value* list = root.Find(key);
  if (list == nullptr || !list->is_array()) return Corrupt("'" + std::string(key) + "' is no list");
  std::vector<T> items;
  for (const json::Value& element : list->as_array()) {
    Result<T> item = read(element);
    if (!item.ok()) return item.status().WithContext(key);
    items.push_back(*std::move(item));
  }
  return items;
}

/// The list is there only where it holds something.
Result<std::vector<ManifestEntry>> DiscardedShardsOf(const json::Value& root) {
  if (root.Find(kDiscardedKey) == nullptr) return std::vector<ManifestEntry>();
  return ListOf(root, kDiscardedKey, EntryOf);
}

/// That the totals of a manifest from outside are numbers at all.
Status CheckSums(std::string_view key, const std::vector<ManifestEntry>& shards) {
  std::int64_t samples = 0, tokens = 0, quarantined = 0, bytes = 0;
  for (const ManifestEntry& shard : shards) {
    if (__builtin_add_overflow(samples, shard.samples, &samples) ||
        __builtin_add_overflow(tokens, shard.tokens, &tokens) ||
        __builtin_add_overflow(quarantined, shard.quarantined, &quarantined) ||
        __builtin_add_overflow(bytes, shard.file.bytes, &bytes)) {
      return Corrupt("'" + std::string(key) + "' hold more than any disk, up to " + shard.file.path);
    }
  }
  return OkStatus();
}

Result<Manifest> ManifestOf(const json::Value& root) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string format, TextOf(root, "format"));
  if (format != kFormatName) return Corrupt("its format is '" + format + "'");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::int64_t version, NumberOf(root, "format_version"));
  if (version != kFormatVersion)
    return Unsupported("format version " + std::to_string(version) + "; this draftmill reads 1");
  Manifest manifest;
  const json::Value* facts = root.Find("facts");
  if (facts == nullptr || !facts->is_object()) return Corrupt("'facts' is no object");
  manifest.facts = *facts;
  DRAFTMILL_ASSIGN_OR_RETURN(manifest.corpus, ListOf(root, "corpus", EntryOf));
  DRAFTMILL_ASSIGN_OR_RETURN(manifest.vocab, ListOf(root, "vocab", FileOf));
  DRAFTMILL_ASSIGN_OR_RETURN(manifest.shards, ListOf(root, "shards", EntryOf));
  DRAFTMILL_ASSIGN_OR_RETURN(manifest.discarded_shards, DiscardedShardsOf(root));
  DRAFTMILL_RETURN_IF_ERROR(CheckSums("shards", manifest.shards));
  DRAFTMILL_RETURN_IF_ERROR(CheckSums(kDiscardedKey, manifest.discarded_shards));
  return manifest;
}

}  // namespace

std::string DiscardedShardsNote(std::int64_t shards) {
  return std::to_string(shards) +
         (shards == 1 ? " shard was deleted after its publication" : " shards were deleted after their publication") +
         " (write.discard_after_publish): the hidden states in " + (shards == 1 ? "it" : "them") +
         " are gone, so this work folder is a benchmark's and no data set";
}

std::string ManifestPath(const std::string& work_folder) { return JoinPath(work_folder, "manifest.json"); }

std::string ManifestText(const Manifest& manifest) {
  json::Array vocab;
  for (const PublishedFile& file : manifest.vocab) vocab.emplace_back(FileObject(file));
  json::Object root = {{"format", kFormatName},
                       {"format_version", kFormatVersion},
                       {"facts", manifest.facts},
                       {"totals", Totals(manifest)},
                       {"corpus", EntryList(manifest.corpus)},
                       {"vocab", std::move(vocab)},
                       {"shards", EntryList(manifest.shards)}};
  if (!manifest.discarded_shards.empty()) root.emplace_back(kDiscardedKey, EntryList(manifest.discarded_shards));
  return json::Write(json::Value(std::move(root)), json::Style::kCanonical) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text, const std::string& path) {
  Result<json::Value> root = json::Parse(text);
  if (!root.ok()) return Corrupt(path + ": " + root.status().message());
  return ManifestOf(*root).WithContext(path);
}

Status WriteManifest(FileSystem& file_system, const std::string& work_folder, const Manifest& manifest) {
  return file_system.WriteAtomically(ManifestPath(work_folder), ManifestText(manifest));
}

Result<Manifest> ReadManifest(FileSystem& file_system, const std::string& work_folder) {
  const std::string path = ManifestPath(work_folder);
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string text, file_system.ReadAll(path));
  return ParseManifest(text, path);
}

Status RemoveManifest(FileSystem& file_system, const std::string& work_folder) {
  const std::string path = ManifestPath(work_folder);
  if (!file_system.Exists(path)) return OkStatus();
  DRAFTMILL_RETURN_IF_ERROR(file_system.Remove(path));
  return file_system.SyncFolder(work_folder);
}

}  // namespace draftmill
