#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/memory/cpu_memory.h"
#include "stages/extract/memory/device_memory.h"
#include "stages/extract/model/device_support.h"
#include "stages/extract/model/model_config.h"
#include "stages/extract/model/model_family.h"
#include "stages/extract/model/model_folder.h"
#include "stages/extract/model/weights_index.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

/// What the states depend on besides the weights' values: config.json, headers, file sizes.
Result<std::string> Fingerprint(const std::string& model_folder, const WeightsIndex& index) {
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string config, RealFileSystem().ReadAll(JoinPath(model_folder, "config.json")));
  StreamingHash hash;
  hash.Update(ToHex(HashBytes128(config)));
  for (const WeightsFile& file : index.files) {
    hash.Update("\n" + file.name + " " + std::to_string(file.size_bytes) + " " + ToHex(file.header_hash));
  }
  return ToHex(hash.Digest128());
}

/// "model.layers.N.self_attn.q_proj.weight" of any layer; experts become N too.
std::string PatternOf(const std::string& name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t end = std::min(name.find('.', i), name.size());
    const std::string part = name.substr(i, end - i);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (i > 0 ? "." : "") + (is_number ? "N" : part);
    i = end + 1;
  }
  return pattern;
}

json::Value TensorFacts(const WeightsIndex& index) {
  std::map<std::string, std::int64_t> patterns;
  for (const auto& [name, place] : index.tensors) ++patterns[PatternOf(name)];
  json::Object counts;
  for (const auto& [pattern, count] : patterns) counts.emplace_back(pattern, count);
  json::Object facts;
  facts.emplace_back("count", static_cast<std::int64_t>(index.tensors.size()));
  facts.emplace_back("files", static_cast<std::int64_t>(index.files.size()));
  facts.emplace_back("patterns", std::move(counts));
  return facts;
}

/// What the checkpoint adds to a model's facts.
void AddCheckpointFacts(const WeightsIndex& index, const CheckpointTensors& tensors, json::Value& facts) {
  facts.Set("prefix", tensors.prefix());
  facts.Set("ignored_tensors", tensors.ignored());
  json::Array notes;
  for (const std::string& note : index.notes) notes.emplace_back(note);
  facts.Set("notes", std::move(notes));
}

}  // namespace

Result<ModelFolder> OpenModelFolder(const std::string& model_folder, const std::vector<std::int32_t>& layers) {
  ModelFolder model;
  DRAFTMILL_ASSIGN_OR_RETURN(model.config, ReadModelConfig(model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(model.index, OpenWeightsIndex(model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(model.tensors, MatchTensors(model.index, model.config));
  model.config.quantization.scale_type = model.tensors.scale_type();
  ModelDescription& description = model.description;
  DRAFTMILL_ASSIGN_OR_RETURN(description.layers, ResolveLayers(layers, model.config.num_layers));
  description.family = model.config.family->name;
  description.num_layers = static_cast<std::int32_t>(model.config.num_layers);
  description.hidden_size = static_cast<std::int32_t>(model.config.hidden_size);
  description.vocab_rows = model.config.vocab_size;
  description.max_positions = model.config.max_positions;
  description.memory = CpuMemoryOf(model.config, static_cast<std::int64_t>(description.layers.size()));
  description.device_memory = DeviceMemoryOf(model.config, description.layers);
  description.spans_blocks = model.config.experts.has_value();
  description.device_support = CheckDeviceSupports(model.config);
  description.published_in_float32 = model.config.compute == ComputeType::kFloat32;
  description.weight_bytes = model.tensors.total_bytes();
  DRAFTMILL_ASSIGN_OR_RETURN(description.model_fingerprint, Fingerprint(model_folder, model.index));
  description.facts = ModelFacts(model.config);
  AddCheckpointFacts(model.index, model.tensors, description.facts);
  return model;
}

Result<json::Value> ReportModel(const std::string& model_folder, ReportScope scope) {
  DRAFTMILL_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model_folder));
  json::Value facts = ModelFacts(config);
  WeightsIndex index;
  if (scope == ReportScope::kHeaders) {
    DRAFTMILL_ASSIGN_OR_RETURN(index, OpenWeightsIndex(model_folder));
  } else {
    Result<WeightsIndex> names = OpenIndexNames(model_folder);
    if (!names.ok() && names.status().code() == StatusCode::kNotFound) return facts;
    DRAFTMILL_ASSIGN_OR_RETURN(index, std::move(names));
  }
  const MatchMode mode = scope == ReportScope::kHeaders ? MatchMode::kWhole : MatchMode::kNamesOnly;
  DRAFTMILL_ASSIGN_OR_RETURN(const CheckpointTensors tensors, MatchTensors(index, config, mode));
  facts.Set("tensors", TensorFacts(index));
  AddCheckpointFacts(index, tensors, facts);
  if (scope == ReportScope::kHeaders) facts.Set("weight_bytes", tensors.total_bytes());
  return facts;
}

Result<ModelDescription> DescribeModel(const std::string& model_folder, const std::vector<std::int32_t>& layers) {
  DRAFTMILL_ASSIGN_OR_RETURN(ModelFolder model, OpenModelFolder(model_folder, layers));
  return std::move(model.description);
}

}  // namespace draftmill
