// States of token rows without a run: what `draftmill states` does, and what parity tests use.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(StatesReport report, ComputeStates(request, should_stop));
//
// The input is JSON lines {"input_ids": [...]}. The output is laid out as a shard (docs/formats.md, "States of rows"):
// hidden_states [T, L, H] in BF16 or F32, rows in the order of the input, whatever batches they were computed in.
// Needs no torch itself; in builds without the engine it fails as Extractor::Create does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "stages/extract/extractor.h"

namespace draftmill {

struct StatesRequest {
  ExtractOptions options;
  std::string input_path;
  std::string output_path;
  std::int64_t batch_tokens = 0;  ///< 0 for auto
  std::int64_t block_tokens = 0;  ///< 0 for auto
};

struct StatesReport {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t quarantined = 0;  ///< rows whose states were NaN or infinite; stored as zeros
  double load_seconds = 0;       ///< until the model stood ready
  double extract_seconds = 0;    ///< computing and writing
  std::string numerics_environment;
  std::string weights_digest;
};

/// Computes and writes. The output appears whole or not at all.
Result<StatesReport> ComputeStates(const StatesRequest& request, const std::function<bool()>& should_stop);
/// The same with an extractor that stands ready; of the request's options only the dtype and the memory matter.
Result<StatesReport> ComputeStates(const StatesRequest& request, Extractor& extractor,
                                   const std::function<bool()>& should_stop);

}  // namespace draftmill
