#include "pipeline/reports/sample_name.h"

#include <charconv>

namespace draftmill {
namespace {

/// A number from 0 in plain digits, the whole text.
template <typename Integer>
std::optional<Integer> ParseNumber(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<SampleName> ParseSampleName(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto sample_id = ParseNumber<std::int64_t>(text.substr(0, slash));
  if (!sample_id) return std::nullopt;
  SampleName name{.sample_id = *sample_id, .variant = {}};
  if (slash == std::string_view::npos) return name;
  name.variant = ParseNumber<std::int32_t>(text.substr(slash + 1));
  return name.variant ? std::optional(name) : std::nullopt;
}

std::optional<ShardName> ParseShardName(std::string_view text) {
  constexpr std::string_view kEnding = ".safetensors";
  if (const std::size_t slash = text.rfind('/'); slash != std::string_view::npos) text.remove_prefix(slash + 1);
  if (text.ends_with(kEnding)) text.remove_suffix(kEnding.size());
  const std::size_t separator = text.find("-s");
  if (text.empty() || text[0] != 'c' || separator == std::string_view::npos) return std::nullopt;
  const auto chunk = ParseNumber<std::int32_t>(text.substr(1, separator - 1));
  const auto shard = ParseNumber<std::int64_t>(text.substr(separator + 2));
  if (!chunk || !shard) return std::nullopt;
  return ShardName{*chunk, *shard};
}

}  // namespace draftmill
