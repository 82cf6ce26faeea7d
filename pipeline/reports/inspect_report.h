// A look into a work folder, one of its shards, or one sample: for `draftmill inspect`.
//
// Needs no model but for the text of a sample, whose tokens the tokenizer turns back into bytes. Everything read is
// bounded by one chunk of rows or one sample's states. Read-only, safe from any thread. Errors: kNotFound names what is
// not there; kCorrupt a damaged file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "pipeline/reports/sample_name.h"
#include "state/file_system.h"

namespace draftmill {

/// The bytes that a token stands for.
using TokenBytesFunction = std::function<std::string(std::int32_t)>;

/// Sources, chunks and shards of a work folder.
Result<json::Value> InspectWorkFolder(FileSystem& files, const std::string& work_folder);

/// A published shard: its metadata, its samples, and for at most kSamplesWithNorms of these, spread over the shard, the
/// mean norm of each kept layer's states per token.
Result<json::Value> InspectShard(FileSystem& files, const std::string& work_folder, const ShardName& name);
inline constexpr std::int64_t kSamplesWithNorms = 32;

/// One token of a sample.
struct InspectedToken {
  std::int32_t id = 0;
  bool supervised = false;
  std::string bytes;  ///< empty where no tokenizer was given
};

/// One sample as far as it has come.
struct InspectedSample {
  json::Value facts;                   ///< where it stands and where it came from
  json::Value conversation;            ///< as it was ingested; null where the work folder no longer has it
  std::vector<InspectedToken> tokens;  ///< empty where it is not tokenized
};

/// All samples that the name stands for, by variant. `token_bytes` may be empty.
Result<std::vector<InspectedSample>> InspectSample(FileSystem& files, const std::string& work_folder,
                                                   const SampleName& name, const TokenBytesFunction& token_bytes);

/// How a sample is shown to people.
struct SampleStyle {
  bool colours = false;  ///< supervised tokens in green; else between the brackets U+27E6 and U+27E7
  bool ids = false;      ///< one line per token with its id instead of running text
};

/// Facts and rendered text. Control characters of the text are shown, never sent to a terminal.
std::string SampleAsText(const InspectedSample& sample, const SampleStyle& style);
/// The same for programs: {..., "conversation", "text": [{"text", "supervised"}], "input_ids", "loss_mask"}.
json::Value SampleAsJson(const InspectedSample& sample);

}  // namespace draftmill
