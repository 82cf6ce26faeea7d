// The engine on the CPU, made from a model folder that was read and checked.
#pragma once

#include <memory>

#include "base/status.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/model_folder.h"

namespace draftmill {

/// Loads the weights and computes what model.config says. Extractor::Create with `device: cpu` is this after
/// OpenModelFolder.
Result<std::unique_ptr<Extractor>> MakeCpuExtractor(ModelFolder model, const ExtractOptions& options);

}  // namespace draftmill
