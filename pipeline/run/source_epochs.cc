#include "pipeline/run/source_epochs.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/json.h"

namespace draftmill {
namespace {

constexpr std::string_view kSourcePrefix = "source ";
constexpr std::string_view kContentSuffix = " content";

bool IsContentPart(std::string_view name) { return name.starts_with(kSourcePrefix) && name.ends_with(kContentSuffix); }

const std::string* ValueOf(const Fingerprint& fingerprint, std::string_view name) {
  for (const FingerprintPart& part : fingerprint.parts()) {
    if (part.name == name) return &part.value;
  }
  return nullptr;
}

/// "2+1" as numbers; empty where it is anything else.
std::vector<std::int64_t> SizesOf(std::string_view text) {
  std::vector<std::int64_t> sizes;
  while (!text.empty()) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size <= 0) return {};
    sizes.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return sizes;
    if (text.front() != '+' || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  return sizes;
}

/// The contents of each epoch's files, in their order; empty where the fingerprint does not say.
std::vector<std::vector<std::string>> KnownEpochs(const Fingerprint& known) {
  std::vector<std::vector<std::string>> epochs;
  std::size_t source = 0;
  for (const std::int64_t size : EpochSizes(known)) {
    epochs.emplace_back();
    for (std::int64_t i = 0; i < size; ++i) {
      const std::string* content = ValueOf(known, SourcePartName(source++));
      if (content == nullptr) return {};
      epochs.back().push_back(*content);
    }
  }
  return epochs;
}

bool HaveEqualParameters(const Fingerprint& now, const Fingerprint& known) {
  const std::vector<FingerprintChange> changes = Diff(known, now);
  return std::all_of(changes.begin(), changes.end(), [](const FingerprintChange& change) {
    return change.name == kSourcesPart || change.name == kEpochsPart || IsContentPart(change.name);
  });
}

/// Whether the entries that the known files belong to now are, in what they take, those of then.
bool HaveEqualEntries(const std::vector<bool>& has_known_file, const Fingerprint& now, const Fingerprint& known) {
  const std::string* now_text = ValueOf(now, kSourcesPart);
  const std::string* known_text = ValueOf(known, kSourcesPart);
  if (now_text == nullptr || known_text == nullptr) return now_text == known_text;
  const Result<json::Value> now_entries = json::Parse(*now_text);
  const Result<json::Value> known_entries = json::Parse(*known_text);
  if (!now_entries.ok() || !known_entries.ok() || !now_entries->is_array() || !known_entries->is_array()) return false;
  json::Array kept;
  const json::Array& entries = now_entries->as_array();
  for (std::size_t i = 0; i < entries.size() && i < has_known_file.size(); ++i) {
    if (has_known_file[i]) kept.push_back(entries[i]);
  }
  return json::Value(std::move(kept)) == *known_entries;
}

}  // namespace

std::string SourcePartName(std::size_t source) {
  return std::string(kSourcePrefix) + std::to_string(source) + std::string(kContentSuffix);
}

std::vector<OrderedSource> OrderSources(const std::vector<FoundSource>& found, const Fingerprint& parameters,
                                        const Fingerprint& known, bool may_extend) {
  std::vector<OrderedSource> as_found;
  std::size_t entries = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    as_found.push_back({.found = i, .epoch = 0});
    entries = std::max(entries, found[i].spec + 1);
  }
  std::vector<OrderedSource> order;
  std::vector<bool> is_placed(found.size());
  std::vector<bool> has_known_file(entries);
  std::int32_t epoch = 0;
  for (const std::vector<std::string>& contents : KnownEpochs(known)) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < found.size() && next < contents.size(); ++i) {
      if (is_placed[i] || ToHex(found[i].content) != contents[next]) continue;
      ++next;
      is_placed[i] = true;
      has_known_file[found[i].spec] = true;
      order.push_back({.found = i, .epoch = epoch});
    }
    if (next < contents.size()) return as_found;  // one of them is gone, has another content, or stands elsewhere
    ++epoch;
  }
  if (order.size() == found.size()) return order;
  if (epoch == 0 || !may_extend || !HaveEqualParameters(parameters, known)) return as_found;
  if (!HaveEqualEntries(has_known_file, parameters, known)) return as_found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!is_placed[i]) order.push_back({.found = i, .epoch = epoch});
  }
  return order;
}

std::vector<std::int64_t> EpochSizes(const Fingerprint& ingest) {
  if (const std::string* sizes = ValueOf(ingest, kEpochsPart)) return SizesOf(*sizes);
  const auto files = std::count_if(ingest.parts().begin(), ingest.parts().end(),
                                   [](const FingerprintPart& part) { return IsContentPart(part.name); });
  return files == 0 ? std::vector<std::int64_t>() : std::vector<std::int64_t>{files};
}

bool IsExtension(const std::vector<FingerprintChange>& changes) {
  std::optional<std::vector<std::int64_t>> before;
  std::vector<std::int64_t> after;
  for (const FingerprintChange& change : changes) {
    if (change.name == kEpochsPart) {
      before = SizesOf(change.old_value);
      after = SizesOf(change.new_value);
    } else if (IsContentPart(change.name)) {
      if (change.kind != FingerprintChange::Kind::kAdded) return false;
    } else if (change.name != kSourcesPart) {
      return false;
    }
  }
  // Without a part `epochs` there was one epoch, and now are two.
  if (!before) return false;
  if (before->empty()) return after.size() == 2;
  return after.size() == before->size() + 1 && std::equal(before->begin(), before->end(), after.begin());
}

}  // namespace draftmill
