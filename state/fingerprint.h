// What a stage's output depends on, as named parts, and the hash over them (docs/state.md, "fingerprints").
//
//   Fingerprint fingerprint;
//   fingerprint.Add("code version", "3");
//   fingerprint.Add("tokenize.max_length", "2048");
//   fingerprint.Add("model.tokenizer", ToHex(digest));
//   if (fingerprint.hash() != stored.hash()) for (const FingerprintChange& change : Diff(stored, fingerprint)) ...
//
// Parts are content: never time stamps, paths, hosts or thread counts. The hash does not depend on the order in which
// they were added. Plain values; one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "state/file_system.h"

namespace draftmill {

struct FingerprintPart {
  std::string name;
  std::string value;
  friend bool operator==(const FingerprintPart&, const FingerprintPart&) = default;
};

class Fingerprint {
 public:
  /// The name must be new: a second part of the same name is a bug.
  void Add(std::string name, std::string value);
  /// In the order in which they were added.
  const std::vector<FingerprintPart>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }
  /// Whether a part of this name was added.
  bool Has(std::string_view name) const;
  /// XXH3-128 in hexadecimal over the parts sorted by name, each as `length:name length:value` with lengths in bytes.
  std::string hash() const;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;

 private:
  std::vector<FingerprintPart> parts_;
};

/// A part that is not the same in two fingerprints.
struct FingerprintChange {
  enum class Kind : std::uint8_t { kChanged, kAdded, kRemoved };
  Kind kind = Kind::kChanged;
  std::string name;
  std::string old_value;  ///< empty where added
  std::string new_value;  ///< empty where removed
  friend bool operator==(const FingerprintChange&, const FingerprintChange&) = default;
};

/// What differs: changed and removed parts in the old order, then added ones in the new order.
std::vector<FingerprintChange> Diff(const Fingerprint& old_fingerprint, const Fingerprint& new_fingerprint);
/// "tokenize.max_length: 2048 -> 4096", "extract.layers: added, [2, 15]" for messages; long values are cut.
std::string ToString(const FingerprintChange& change);

struct FileDigest {
  Hash128 hash;
  std::int64_t bytes = 0;
};

/// XXH3-128 over a whole file, read in pieces of 1 MiB.
Result<FileDigest> HashFile(FileSystem& files, const std::string& path);

}  // namespace draftmill
