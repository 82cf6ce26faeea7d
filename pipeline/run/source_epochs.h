// In which order the source files of a run are ingested, when files were added after earlier ones had been.
//
// A file that is added to a run whose ingest is done begins an *epoch*: its rows come after all that are there, in chunks
// of their own, so nothing that is there gets another number or is computed again. Any other change of the sources makes
// one epoch of them all. What the epochs are follows from the stored fingerprint of ingest and the files' content alone:
//
//   known   `source 0 content` a, `source 1 content` b
//   found   c, a, b  (a folder in which c is new)     ->  a, b, c with the epochs 0, 0, 1; part `epochs` is "2+1"
//
// Plain functions; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "state/fingerprint.h"

namespace draftmill {

/// The fingerprint part of ingest that says how many files each epoch has: "2+1". One epoch has none.
inline constexpr std::string_view kEpochsPart = "epochs";
/// The part that holds `ingest.sources` without the paths.
inline constexpr std::string_view kSourcesPart = "ingest.sources";

/// The name of the fingerprint part that stands for the content of the i-th source file: "source 0 content".
std::string SourcePartName(std::size_t source);

/// A source file as it was found now.
struct FoundSource {
  std::size_t spec = 0;  ///< its entry of `ingest.sources`
  Hash128 content;
};

/// A place in the order of ingest.
struct OrderedSource {
  std::size_t found = 0;  ///< index of what was found
  std::int32_t epoch = 0;
};

/// The order in which files are ingested. `parameters` is the present fingerprint of ingest without any file, `known` the
/// stored one (empty where there is none). `may_extend`: whether files that are not in `known` may begin an epoch.
std::vector<OrderedSource> OrderSources(const std::vector<FoundSource>& found, const Fingerprint& parameters,
                                        const Fingerprint& known, bool may_extend);

/// How many files each epoch has, by the part `epochs` or, without it, the contents that the fingerprint names.
std::vector<std::int64_t> EpochSizes(const Fingerprint& ingest);

/// Whether all that changed in the fingerprint of ingest is that files were added as a further epoch.
bool IsExtension(const std::vector<FingerprintChange>& changes);

}  // namespace draftmill
