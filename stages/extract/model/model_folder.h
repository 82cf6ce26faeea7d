// A model folder that was read and checked from end to end, without its weights: what DescribeModel and the engine share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "stages/extract/extractor.h"
#include "stages/extract/model/model_config.h"
#include "stages/extract/model/weights_index.h"

namespace draftmill {

struct ModelFolder {
  ModelConfig config;
  WeightsIndex index;
  CheckpointTensors tensors;
  ModelDescription description;
};

/// Reads config.json and all headers, checks every tensor, resolves the layers. Reads no weights.
Result<ModelFolder> OpenModelFolder(const std::string& model_folder, const std::vector<std::int32_t>& layers);

/// How much of a model folder a report looks at.
enum class ReportScope : std::uint8_t {
  kHeaders,     ///< config.json and all safetensors headers
  kConfigOnly,  ///< config.json, and the names of model.safetensors.index.json where there is one
};

/// What `doctor model --json` prints: ModelFacts and what the checkpoint tells. Reads no weights; refuses as a run would.
Result<json::Value> ReportModel(const std::string& model_folder, ReportScope scope);

}  // namespace draftmill
