// How people name a sample and a shard on a command line: "4711", "4711/1", "c000012-s003" or a shard's path. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace draftmill {

struct SampleName {
  std::int64_t sample_id = 0;
  std::optional<std::int32_t> variant;  ///< nothing: all samples of the conversation
};

/// ID or ID/VARIANT.
std::optional<SampleName> ParseSampleName(std::string_view text);

struct ShardName {
  std::int32_t chunk = 0;
  std::int64_t shard = 0;
};

/// "c000012-s003", with any folders before it and ".safetensors" after it.
std::optional<ShardName> ParseShardName(std::string_view text);

}  // namespace draftmill
