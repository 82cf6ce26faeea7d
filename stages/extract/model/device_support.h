// Which models the engine for GPUs runs, told from config.json alone.
#pragma once

#include "base/status.h"
#include "stages/extract/model/model_config.h"

namespace draftmill {

/// OK, or kUnsupported with what of the model the GPU engine does not run.
Status CheckDeviceSupports(const ModelConfig& config);

}  // namespace draftmill
