// Counts which tokens a drafter has to be able to emit, and chooses those that get a place in its smaller vocabulary.
//
//   VocabCounter counter(vocab_rows, sources);                    // one per thread; Merge joins them
//   DRAFTMILL_RETURN_IF_ERROR(counter.Count(chunk));
//   DRAFTMILL_ASSIGN_OR_RETURN(VocabMap map, BuildVocabMap(counter, request));
//   DRAFTMILL_ASSIGN_OR_RETURN(auto files, WriteVocab(file_system, work_folder, map));   // vocab_files.h
//
// Only supervised tokens count. Places go first to forced ids, then to the most frequent tokens (ties: the lower id);
// places that no counted token needs go to the lowest unused ids. The result is a function of the counts and the
// request, whatever the order of the chunks. Form of the map: offsets, as EAGLE-3's trainers read it (docs/formats.md,
// "Vocabulary map"). A size that reaches the vocabulary means that there is no map.
//
// Memory: 8 bytes for each of vocab_rows * min(sources, kMaxSeparateSources), whatever the corpus. Threads: a counter
// belongs to one at a time. Errors: kInvalidInput names the sample or token, kInvalidConfig the parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "formats/records.h"

namespace draftmill {

/// So many sources are counted apart; a folder of thousands of files is counted as the first ones and all others
/// together.
inline constexpr std::int32_t kMaxSeparateSources = 64;

class VocabCounter {
 public:
  /// `vocab_rows` is V, the rows of the embedding; `sources` how many sources TokenizedChunk::source may name.
  VocabCounter(std::int64_t vocab_rows, std::int32_t sources);

  /// Adds the supervised tokens of a chunk. A failure leaves the counts as they were.
  Status Count(const TokenizedChunk& chunk);
  /// Adds the counts of another counter of the same sizes.
  void Merge(const VocabCounter& other);

  std::int64_t vocab_rows() const { return vocab_rows_; }
  std::int32_t sources() const { return sources_; }
  /// How many lists of counts there are: one a source, the last one of several where there are too many.
  std::int32_t columns() const { return columns_; }
  /// [V] supervised occurrences in one source, or in all that share the last column.
  std::span<const std::int64_t> Frequencies(std::int32_t column) const;
  /// [V] supervised occurrences over all sources.
  std::vector<std::int64_t> TotalFrequencies() const;

 private:
  Status CheckSample(const TokenizedChunk& chunk, std::int64_t sample) const;

  std::int64_t vocab_rows_;
  std::int32_t sources_;
  std::int32_t columns_;
  std::vector<std::int64_t> counts_;  // [columns, V]
};

/// What is asked of a map.
struct VocabMapRequest {
  std::int64_t size = 0;                         ///< D, the drafter's vocabulary
  std::vector<std::int32_t> stop_tokens = {};    ///< forced in
  std::vector<std::int32_t> added_tokens = {};   ///< forced in where they were supervised at least once
  std::vector<std::int32_t> forced_tokens = {};  ///< the configured list, forced in
  std::vector<std::string> source_names = {};    ///< [sources], for the report
  std::string corpus_digest = {};                ///< binds the map to its corpus: stands in the report
  std::string mask_rule = {};                    ///< fingerprint of tokenize, in the report likewise
  /// d2t of a map that was made elsewhere and is taken as it is, in place of the choice; its length is `size`.
  std::optional<std::vector<std::int64_t>> imported_d2t = {};
};

/// A map, or the finding that none is needed.
struct VocabMap {
  bool exists = false;                   ///< false where size >= V: d2t and t2d are empty
  std::vector<std::int64_t> d2t;         ///< [D] target id of draft id i is i + d2t[i]; target ids ascend
  std::vector<std::uint8_t> t2d;         ///< [V] 1 where the target id has a draft id
  std::vector<std::int64_t> token_freq;  ///< [V]
  json::Value report;                    ///< what report.json holds
};

/// [V] the t2d that belongs to a d2t, or why it is none (kCorrupt): every draft id must stand for a target id below V,
/// in ascending order.
Result<std::vector<std::uint8_t>> TargetsOf(std::span<const std::int64_t> d2t, std::int64_t vocab_rows);

Result<VocabMap> BuildVocabMap(const VocabCounter& counter, const VocabMapRequest& request);

}  // namespace draftmill
