// Reads how a checkpoint is quantised: from config.json in any of its spellings, and from the files beside it.
//
// Understood are block FP8, compressed-tensors pack-quantized int4 and MXFP4 (docs/models.md). Every other method is
// refused by its name (kUnsupported) before anything is loaded.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// The quantisation that `config` (config.json or its text_config) states; kNone where it states none.
Result<Quantization> ReadQuantization(const json::Value& config, const std::string& path);

/// Refuses a folder whose quantisation only a file beside config.json tells.
Status RefuseQuantizationBeside(const std::string& model_folder, const Quantization& quantization);

}  // namespace draftmill
