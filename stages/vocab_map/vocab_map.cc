#include "stages/vocab_map/vocab_map.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>

namespace draftmill {
namespace {

// Sizes for which the report says what coverage they would give, besides the chosen one.
constexpr std::array<std::int64_t, 9> kCurveSizes = {1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000};

// Why an id has a place that its count alone might not give it.
struct ForcedTokens {
  std::vector<std::int32_t> stop;
  std::vector<std::int32_t> added;
  std::vector<std::int32_t> configured;
  std::vector<std::int32_t> all;  // each once, ascending
};

void SortUnique(std::vector<std::int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Status CheckRange(const std::vector<std::int32_t>& ids, std::int64_t vocab_rows, std::string_view what,
                  StatusCode code) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < vocab_rows) continue;
    return {code, std::string(what) + " " + std::to_string(id) + " lies outside the model's vocabulary of " +
                      std::to_string(vocab_rows) + " rows"};
  }
  return OkStatus();
}

Result<ForcedTokens> CollectForced(const VocabMapRequest& request, const std::vector<std::int64_t>& frequencies) {
  const auto rows = static_cast<std::int64_t>(frequencies.size());
  DRAFTMILL_RETURN_IF_ERROR(CheckRange(request.stop_tokens, rows, "stop token", StatusCode::kInvalidInput));
  DRAFTMILL_RETURN_IF_ERROR(
      CheckRange(request.forced_tokens, rows, "vocab_map.forced_tokens: token", StatusCode::kInvalidConfig));
  ForcedTokens forced{.stop = request.stop_tokens, .added = {}, .configured = request.forced_tokens, .all = {}};
  for (const std::int32_t id : request.added_tokens) {
    // A tokenizer may know more tokens than the model has rows; one that was never supervised needs no place.
    if (id >= 0 && id < rows && frequencies[static_cast<std::size_t>(id)] > 0) forced.added.push_back(id);
  }
  for (std::vector<std::int32_t>* ids : {&forced.stop, &forced.added, &forced.configured}) {
    SortUnique(*ids);
    forced.all.insert(forced.all.end(), ids->begin(), ids->end());
  }
  SortUnique(forced.all);
  return forced;
}

// The target ids of an imported map, ascending.
Result<std::vector<std::int32_t>> ImportedTokens(const std::vector<std::int64_t>& d2t, const ForcedTokens& forced,
                                                 std::int64_t vocab_rows) {
  DRAFTMILL_RETURN_IF_ERROR(TargetsOf(d2t, vocab_rows).status().WithContext("vocab_map.import"));
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < d2t.size(); ++i) {
    ids.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) + d2t[i]));
  }
  for (const std::int32_t id : forced.configured) {
    if (std::binary_search(ids.begin(), ids.end(), id)) continue;
    return InvalidConfig("vocab_map.forced_tokens names token " + std::to_string(id) +
                         ", which the imported map leaves out. Take it off the list, or have a map made");
  }
  return ids;
}

// All ids in the order in which they get places: forced, then by falling count, then by rising id.
std::vector<std::int32_t> RankTokens(const std::vector<std::int64_t>& frequencies, const ForcedTokens& forced) {
  std::vector<std::uint8_t> is_forced(frequencies.size());
  for (const std::int32_t id : forced.all) is_forced[static_cast<std::size_t>(id)] = 1;
  std::vector<std::int32_t> ranked(frequencies.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a);
    const auto j = static_cast<std::size_t>(b);
    return std::pair(is_forced[i], frequencies[i]) > std::pair(is_forced[j], frequencies[j]);
  });
  return ranked;
}

json::Value IdList(const std::vector<std::int32_t>& ids) {
  json::Array list;
  for (const std::int32_t id : ids) list.emplace_back(std::int64_t{id});
  return list;
}

// Those of `wanted` that are not in `chosen`; both ascend.
std::vector<std::int32_t> LeftOut(const std::vector<std::int32_t>& wanted, const std::vector<std::int32_t>& chosen) {
  std::vector<std::int32_t> left_out;
  std::set_difference(wanted.begin(), wanted.end(), chosen.begin(), chosen.end(), std::back_inserter(left_out));
  return left_out;
}

json::Value Share(std::int64_t covered, std::int64_t supervised) {
  if (supervised == 0) return json::Value();
  return json::Value(static_cast<double>(covered) / static_cast<double>(supervised));
}

json::Object CoverageObject(std::int64_t covered, std::int64_t supervised) {
  return {{"supervised_tokens", supervised}, {"covered_tokens", covered}, {"coverage", Share(covered, supervised)}};
}

std::int64_t Sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t CoveredTokens(std::span<const std::int64_t> counts, const std::vector<std::uint8_t>& has_place) {
  std::int64_t covered = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) covered += has_place[id] != 0 ? counts[id] : 0;
  return covered;
}

/// The sizes that the curve shows: those that can be had, and the chosen one.
std::vector<std::int64_t> CurveSizes(std::int64_t smallest, std::int64_t chosen, std::int64_t vocab_rows) {
  std::vector<std::int64_t> sizes(kCurveSizes.begin(), kCurveSizes.end());
  sizes.push_back(std::min(chosen, vocab_rows));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::erase_if(sizes, [&](std::int64_t size) { return size < smallest || size > vocab_rows; });
  return sizes;
}

/// How many of the counted tokens the first so many ranked ids cover, for each size; the sizes ascend.
std::vector<std::int64_t> CoveredBySize(std::span<const std::int64_t> counts, const std::vector<std::int32_t>& ranked,
                                        const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> result;
  std::int64_t covered = 0;
  std::size_t next = 0;
  for (const std::int64_t size : sizes) {
    for (; next < static_cast<std::size_t>(size); ++next) covered += counts[static_cast<std::size_t>(ranked[next])];
    result.push_back(covered);
  }
  return result;
}

/// What coverage each size would give, over all and in each source, in the order of `by_source`.
json::Value CoverageCurve(const VocabCounter& counter, const std::vector<std::int64_t>& frequencies,
                          const std::vector<std::int32_t>& ranked, const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<std::int64_t>> covered_in_source;
  for (std::int32_t column = 0; column < counter.columns(); ++column) {
    covered_in_source.push_back(CoveredBySize(counter.Frequencies(column), ranked, sizes));
  }
  const std::vector<std::int64_t> covered = CoveredBySize(frequencies, ranked, sizes);
  const std::int64_t supervised = Sum(frequencies);
  json::Array curve;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    json::Array by_source;
    for (std::int32_t column = 0; column < counter.columns(); ++column) {
      by_source.push_back(
          Share(covered_in_source[static_cast<std::size_t>(column)][i], Sum(counter.Frequencies(column))));
    }
    curve.emplace_back(json::Object{{"size", sizes[i]},
                                    {"covered_tokens", covered[i]},
                                    {"coverage", Share(covered[i], supervised)},
                                    {"by_source", std::move(by_source)}});
  }
  return curve;
}

json::Value CoverageBySource(const VocabCounter& counter, const VocabMapRequest& request,
                             const std::vector<std::uint8_t>& has_place) {
  json::Array list;
  for (std::int32_t column = 0; column < counter.columns(); ++column) {
    const std::span<const std::int64_t> counts = counter.Frequencies(column);
    json::Object object = CoverageObject(CoveredTokens(counts, has_place), Sum(counts));
    const std::int32_t together = column + 1 == counter.columns() ? counter.sources() - column : 1;
    std::string name = together > 1 ? std::to_string(together) + " other sources"
                                    : request.source_names[static_cast<std::size_t>(column)];
    object.insert(object.begin(), {"source", std::move(name)});
    list.emplace_back(std::move(object));
  }
  return list;
}

}  // namespace

VocabCounter::VocabCounter(std::int64_t vocab_rows, std::int32_t sources)
    : vocab_rows_(vocab_rows),
      sources_(sources),
      columns_(std::min(sources, kMaxSeparateSources)),
      counts_(static_cast<std::size_t>(vocab_rows) * static_cast<std::size_t>(columns_)) {}

Status VocabCounter::CheckSample(const TokenizedChunk& chunk, std::int64_t sample) const {
  const auto i = static_cast<std::size_t>(sample);
  const auto name = [&] {
    return "sample " + std::to_string(chunk.sample_id[i]) + "/" + std::to_string(chunk.variant[i]);
  };
  if (chunk.source[i] < 0 || chunk.source[i] >= sources_) {
    return Internal(name() + " is of source " + std::to_string(chunk.source[i]) + " of " + std::to_string(sources_));
  }
  for (auto token = chunk.cu_seqlens[i]; token < chunk.cu_seqlens[i + 1]; ++token) {
    const std::int32_t id = chunk.input_ids[static_cast<std::size_t>(token)];
    if (id < 0 || id >= vocab_rows_) {
      return InvalidInput(name() + " has token id " + std::to_string(id) + ", the model's embedding has " +
                          std::to_string(vocab_rows_) + " rows: tokenizer and model do not belong together");
    }
  }
  return OkStatus();
}

Status VocabCounter::Count(const TokenizedChunk& chunk) {
  if (chunk.source.size() != chunk.sample_id.size()) {
    return Internal("chunk " + std::to_string(chunk.chunk) + " comes without the sources of its samples");
  }
  for (std::int64_t sample = 0; sample < chunk.samples(); ++sample) {
    DRAFTMILL_RETURN_IF_ERROR(CheckSample(chunk, sample));
  }
  for (std::size_t i = 0; i < chunk.source.size(); ++i) {
    const std::int32_t column = std::min(chunk.source[i], columns_ - 1);
    std::int64_t* counts = &counts_[static_cast<std::size_t>(column) * static_cast<std::size_t>(vocab_rows_)];
    for (auto token = static_cast<std::size_t>(chunk.cu_seqlens[i]);
         token < static_cast<std::size_t>(chunk.cu_seqlens[i + 1]); ++token) {
      counts[chunk.input_ids[token]] += chunk.loss_mask[token];
    }
  }
  return OkStatus();
}

void VocabCounter::Merge(const VocabCounter& other) {
  DRAFTMILL_CHECK(other.counts_.size() == counts_.size() && other.vocab_rows_ == vocab_rows_, "counters of one size");
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

std::span<const std::int64_t> VocabCounter::Frequencies(std::int32_t column) const {
  const auto rows = static_cast<std::size_t>(vocab_rows_);
  return std::span(counts_).subspan(static_cast<std::size_t>(column) * rows, rows);
}

std::vector<std::int64_t> VocabCounter::TotalFrequencies() const {
  std::vector<std::int64_t> totals(static_cast<std::size_t>(vocab_rows_));
  for (std::int32_t column = 0; column < columns_; ++column) {
    const std::span<const std::int64_t> counts = Frequencies(column);
    for (std::size_t id = 0; id < totals.size(); ++id) totals[id] += counts[id];
  }
  return totals;
}

Result<std::vector<std::uint8_t>> TargetsOf(std::span<const std::int64_t> d2t, std::int64_t vocab_rows) {
  std::vector<std::uint8_t> targets(static_cast<std::size_t>(vocab_rows));
  std::int64_t last = -1;
  for (std::size_t i = 0; i < d2t.size(); ++i) {
    const auto draft_id = static_cast<std::int64_t>(i);
    const bool is_offset = d2t[i] >= 0 && d2t[i] < vocab_rows;
    if (!is_offset || draft_id + d2t[i] <= last || draft_id + d2t[i] >= vocab_rows) {
      return Corrupt("draft id " + std::to_string(i) + " stands for no target id of a vocabulary of " +
                     std::to_string(vocab_rows) + " rows, or out of order");
    }
    last = draft_id + d2t[i];
    targets[static_cast<std::size_t>(last)] = 1;
  }
  return targets;
}

Result<VocabMap> BuildVocabMap(const VocabCounter& counter, const VocabMapRequest& request) {
  DRAFTMILL_CHECK(static_cast<std::int32_t>(request.source_names.size()) == counter.sources(),
                  "a name for each source");
  VocabMap map;
  map.token_freq = counter.TotalFrequencies();
  const std::int64_t supervised = Sum(map.token_freq);
  if (supervised == 0) return InvalidInput("the corpus has no supervised token: there is nothing to map");
  DRAFTMILL_ASSIGN_OR_RETURN(const ForcedTokens forced, CollectForced(request, map.token_freq));
  map.exists = request.size < counter.vocab_rows();
  const auto forced_count = static_cast<std::int64_t>(forced.all.size());
  if (map.exists && !request.imported_d2t && request.size < forced_count) {
    return InvalidConfig("vocab_map.size " + std::to_string(request.size) + " has no room for the " +
                         std::to_string(forced_count) + " forced tokens; raise it");
  }
  const std::vector<std::int32_t> ranked = RankTokens(map.token_freq, forced);
  const std::int64_t places = std::min(request.size, counter.vocab_rows());
  std::vector<std::int32_t> chosen(ranked.begin(), ranked.begin() + places);
  std::sort(chosen.begin(), chosen.end());
  if (request.imported_d2t) {
    DRAFTMILL_ASSIGN_OR_RETURN(chosen, ImportedTokens(*request.imported_d2t, forced, counter.vocab_rows()));
  }
  std::vector<std::uint8_t> has_place(map.token_freq.size());
  for (const std::int32_t id : chosen) has_place[static_cast<std::size_t>(id)] = 1;

  const auto seen = std::count_if(map.token_freq.begin(), map.token_freq.end(), [](std::int64_t n) { return n > 0; });
  const auto idle = std::count_if(chosen.begin(), chosen.end(), [&](std::int32_t id) {
    return map.token_freq[static_cast<std::size_t>(id)] == 0 &&
           !std::binary_search(forced.all.begin(), forced.all.end(), id);
  });
  map.report = json::Object{
      {"format", "draftmill.vocab_report"},
      {"format_version", 1},
      {"map", map.exists},
      {"vocab_rows", counter.vocab_rows()},
      {"size", places},
      {"imported", request.imported_d2t.has_value()},
      {"corpus_digest", request.corpus_digest},
      {"mask_rule", request.mask_rule},
      {"distinct_supervised_tokens", static_cast<std::int64_t>(seen)},
      {"filled_with_unused_ids", static_cast<std::int64_t>(idle)},
      {"forced", json::Object{{"stop_tokens", IdList(forced.stop)},
                              {"added_tokens_supervised", IdList(forced.added)},
                              {"configured", IdList(forced.configured)},
                              {"left_out", IdList(LeftOut(forced.all, chosen))}}},
      {"all", CoverageObject(CoveredTokens(map.token_freq, has_place), supervised)},
      {"by_source", CoverageBySource(counter, request, has_place)},
      {"curve",
       CoverageCurve(counter, map.token_freq, ranked, CurveSizes(forced_count, request.size, counter.vocab_rows()))},
  };
  if (!map.exists) return map;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    map.d2t.push_back(std::int64_t{chosen[i]} - static_cast<std::int64_t>(i));
  }
  map.t2d = std::move(has_place);
  return map;
}

}  // namespace draftmill
