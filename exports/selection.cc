#include "exports/selection.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace draftmill {
namespace {

template <typename T>
bool ParseWhole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Status AboutTerm(const std::string& term, std::string_view expected) {
  return InvalidConfig("--select " + term + ": expected " + std::string(expected) + ". Nothing was written");
}

Status ParseRange(const std::string& term, std::string_view value, Selection& selection) {
  const std::size_t dash = value.find('-');
  std::int64_t first = 0, last = 0;
  const bool is_range = dash != std::string_view::npos && ParseWhole(value.substr(0, dash), first) &&
                        ParseWhole(value.substr(dash + 1), last) && first <= last;
  if (!is_range) return AboutTerm(term, "samples=FIRST-LAST with numbers of conversations, e.g. samples=0-999");
  selection.samples.emplace_back(first, last);
  return OkStatus();
}

Status ParseTerm(const std::string& term, Selection& selection) {
  const std::size_t equals = term.find('=');
  const std::string_view key = std::string_view(term).substr(0, equals);
  const std::string_view value =
      equals == std::string::npos ? std::string_view() : std::string_view(term).substr(equals + 1);
  if (key == "samples") return ParseRange(term, value, selection);
  if (key == "source" && !value.empty()) {
    selection.sources.emplace_back(value);
    return OkStatus();
  }
  if (key == "eval") {
    const bool is_fraction =
        ParseWhole(value, selection.eval_fraction) && selection.eval_fraction > 0 && selection.eval_fraction < 1;
    return is_fraction ? OkStatus() : AboutTerm(term, "eval=FRACTION between 0 and 1, e.g. eval=0.05");
  }
  if (key == "split" && (value == "train" || value == "eval")) {
    selection.only = value == "train" ? Split::kTrain : Split::kEval;
    return OkStatus();
  }
  return AboutTerm(term, "source=PATH, samples=FIRST-LAST, eval=FRACTION or split=train|eval");
}

}  // namespace

std::string_view SplitName(Split split) { return split == Split::kTrain ? "train" : "eval"; }

bool Selection::TakesSample(std::int64_t sample_id) const {
  return samples.empty() || std::any_of(samples.begin(), samples.end(), [sample_id](const auto& range) {
           return range.first <= sample_id && sample_id <= range.second;
         });
}

Split Selection::SideOf(const Hash128& content_hash) const {
  if (eval_fraction <= 0) return Split::kTrain;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number |= static_cast<std::uint64_t>(content_hash.bytes[i]) << (8 * i);
  // 2^64 * fraction as a double is exact enough and the same everywhere.
  return static_cast<double>(number) < std::ldexp(eval_fraction, 64) ? Split::kEval : Split::kTrain;
}

Result<Selection> ParseSelection(const std::vector<std::string>& terms) {
  Selection selection;
  for (const std::string& term : terms) DRAFTMILL_RETURN_IF_ERROR(ParseTerm(term, selection));
  if (selection.only && selection.eval_fraction <= 0) {
    return InvalidConfig(
        "--select split=" + std::string(SplitName(*selection.only)) +
        " needs eval=FRACTION beside it, which says how the conversations are split. Nothing was written");
  }
  return selection;
}

json::Value SelectionFacts(const Selection& selection) {
  json::Array sources(selection.sources.begin(), selection.sources.end());
  json::Array samples;
  for (const auto& [first, last] : selection.samples) samples.emplace_back(json::Array{first, last});
  return json::Object{{"sources", std::move(sources)},
                      {"samples", std::move(samples)},
                      {"eval_fraction", selection.eval_fraction},
                      {"split", selection.only ? json::Value(SplitName(*selection.only)) : json::Value("both")}};
}

}  // namespace draftmill
