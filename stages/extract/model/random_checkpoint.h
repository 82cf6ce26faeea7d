// Checkpoints of random weights for measurements: any supported config.json, no model needed.
//
//   DRAFTMILL_ASSIGN_OR_RETURN(std::int64_t bytes, WriteRandomCheckpoint("configs/llama-8b/config.json",
//   "models/random-8b", 7));
//
// The folder gets config.json as it is and model.safetensors in bfloat16: matrices normal with deviation 0.02, norms
// near 1; what the configuration quantises in its own format, with random codes and scales that give weights about as
// large. The same config and seed give the same bytes. kConflict where the folder already holds a model.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace draftmill {

/// Writes the folder and returns the bytes of its weights.
Result<std::int64_t> WriteRandomCheckpoint(const std::string& config_path, const std::string& folder,
                                           std::uint64_t seed);

}  // namespace draftmill
