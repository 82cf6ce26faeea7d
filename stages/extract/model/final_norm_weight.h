// The final norm of a model folder, read without the engine: what a run keeps so that post-norm states can be derived
// from its shards when the model is gone (formats/final_norm.h).
//
// Reads headers and one tensor. Errors: those of OpenWeightsIndex and MatchTensors. Safe from any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/final_norm.h"
#include "stages/extract/extractor.h"

namespace draftmill {

/// `options` say where the model is and in which order it rounds; `model` is its description.
Result<FinalNorm> ReadFinalNormOfModel(const ExtractOptions& options, const ModelDescription& model);

}  // namespace draftmill
