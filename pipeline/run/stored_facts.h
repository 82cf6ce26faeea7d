// Single values that the state database keeps beside its tables: what `auto` was resolved to, digests of the whole run.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "pipeline/run/run_inputs.h"
#include "state/state_reader.h"
#include "state/store.h"

namespace draftmill {

inline constexpr std::string_view kFactBatchTokens = "extract.batch_tokens";
inline constexpr std::string_view kFactBlockTokens = "extract.block_tokens";
inline constexpr std::string_view kFactNumerics = "extract.numerics_environment";
inline constexpr std::string_view kFactWeightsDigest = "extract.weights_digest";
inline constexpr std::string_view kFactVocabCorpus = "vocab_map.corpus_digest";

/// From state.db; where that is lost, what run.json knows; empty where there is neither.
Result<KnownRun> ReadKnownRun(FileSystem& files, const std::string& work_folder);
void StoreSizes(StateWriter& state, const PlanParameters& plan);

}  // namespace draftmill
