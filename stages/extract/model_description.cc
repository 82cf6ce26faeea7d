#include "stages/extract/model_folder.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/cpu_memory.h"
#include "stages/extract/model_config.h"
#include "stages/extract/model_family.h"
#include "stages/extract/weights_index.h"
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

json::Value RopeFacts(const RopeConfig& rope) {
  json::Object parameters;
  if (rope.type != RopeType::kDefault) parameters.emplace_back("factor", rope.factor);
  if (rope.type == RopeType::kLlama3) {
    parameters.emplace_back("low_freq_factor", rope.low_freq_factor);
    parameters.emplace_back("high_freq_factor", rope.high_freq_factor);
    parameters.emplace_back("original_max_position_embeddings", rope.original_max_positions);
  }
  const std::vector<double> frequencies = InverseFrequencies(rope);
  double sum = 0;
  for (const double frequency : frequencies) sum += frequency;
  json::Object inverse;
  inverse.emplace_back("count", static_cast<std::int64_t>(frequencies.size()));
  inverse.emplace_back("first", frequencies.front());
  inverse.emplace_back("middle", frequencies[frequencies.size() / 2]);
  inverse.emplace_back("last", frequencies.back());
  inverse.emplace_back("sum", sum);
  json::Object facts;
  facts.emplace_back("type", RopeTypeName(rope.type));
  facts.emplace_back("theta", rope.theta);
  facts.emplace_back("rotary_dims", rope.rotary_dims);
  facts.emplace_back("pairing", "halves");
  facts.emplace_back("parameters", std::move(parameters));
  facts.emplace_back("cos_sin_factor", 1.0);
  facts.emplace_back("inv_freq", std::move(inverse));
  return facts;
}

json::Value IntegerList(const std::vector<std::int64_t>& numbers) {
  json::Array list;
  for (const std::int64_t number : numbers) list.emplace_back(number);
  return list;
}

json::Value WindowFacts(const ModelConfig& config) {
  if (config.sliding_layers.empty()) return nullptr;
  json::Array layers;
  for (const std::int32_t layer : config.sliding_layers) layers.emplace_back(std::int64_t{layer});
  json::Object facts;
  facts.emplace_back("tokens_including_self", config.sliding_window);
  facts.emplace_back("layers", std::move(layers));
  facts.emplace_back("binds_within_max_position", config.sliding_window < config.max_positions);
  return facts;
}

void AddEosFacts(const ModelConfig& config, json::Object& facts) {
  std::vector<std::int64_t> all;
  json::Object by_file;
  for (const auto& [file, ids] : config.eos_by_file) {
    all.insert(all.end(), ids.begin(), ids.end());
    by_file.emplace_back(file, IntegerList(ids));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  facts.emplace_back("eos_ids", IntegerList(all));
  facts.emplace_back("eos_by_file", std::move(by_file));
}

}  // namespace

json::Value ModelFacts(const ModelConfig& config) {
  json::Object facts;
  facts.emplace_back("family", config.family->name);
  facts.emplace_back("architecture", config.architecture);
  facts.emplace_back("model_type", config.model_type);
  facts.emplace_back("nested_text_config", false);
  facts.emplace_back("hidden_size", config.hidden_size);
  facts.emplace_back("layers", config.num_layers);
  facts.emplace_back("heads", config.num_heads);
  facts.emplace_back("kv_heads", config.num_kv_heads);
  facts.emplace_back("head_dim", config.head_dim);
  facts.emplace_back("intermediate_size", config.intermediate_size);
  facts.emplace_back("vocab_size", config.vocab_size);
  facts.emplace_back("max_position_embeddings", config.max_positions);
  facts.emplace_back("norm_eps", config.norm_eps);
  facts.emplace_back("norm_weight", "w");
  facts.emplace_back("tied_embeddings", config.tied_embeddings);
  facts.emplace_back("activation", "silu");
  facts.emplace_back("qkv_bias", config.qkv_bias);
  facts.emplace_back("o_bias", config.o_bias);
  facts.emplace_back("qk_norm", config.qk_norm);
  facts.emplace_back("rope", RopeFacts(config.rope));
  facts.emplace_back("softmax_scale", config.softmax_scale);
  facts.emplace_back("sliding_window", WindowFacts(config));
  facts.emplace_back("attention_sinks", false);
  facts.emplace_back("moe", nullptr);
  facts.emplace_back("quantisation", nullptr);
  facts.emplace_back("dtype_in_config", config.dtype);
  json::Array defaults;
  for (const std::string& name : config.taken_from_class_defaults) defaults.emplace_back(name);
  facts.emplace_back("taken_from_class_defaults", std::move(defaults));
  AddEosFacts(config, facts);
  if (const auto layers = DefaultEagle3Layers(config.num_layers); layers.ok()) {
    facts.emplace_back("default_eagle3_layers", IntegerList({layers->begin(), layers->end()}));
  }
  return facts;
}

Result<ModelFolder> OpenModelFolder(const std::string& model_folder, const std::vector<std::int32_t>& layers) {
  ModelFolder model;
  DRAFTMILL_ASSIGN_OR_RETURN(model.config, ReadModelConfig(model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(model.index, OpenWeightsIndex(model_folder));
  DRAFTMILL_ASSIGN_OR_RETURN(model.tensors, MatchTensors(model.index, model.config));
  ModelDescription& description = model.description;
  DRAFTMILL_ASSIGN_OR_RETURN(description.layers, ResolveLayers(layers, model.config.num_layers));
  description.family = model.config.family->name;
  description.num_layers = static_cast<std::int32_t>(model.config.num_layers);
  description.hidden_size = static_cast<std::int32_t>(model.config.hidden_size);
  description.vocab_rows = model.config.vocab_size;
  description.max_positions = model.config.max_positions;
  description.memory = CpuMemoryOf(model.config, static_cast<std::int64_t>(description.layers.size()));
  description.weight_bytes = model.tensors.total_bytes();
  DRAFTMILL_ASSIGN_OR_RETURN(description.model_fingerprint, Fingerprint(model_folder, model.index));
  description.facts = ModelFacts(model.config);
  description.facts.Set("prefix", model.tensors.prefix());
  description.facts.Set("ignored_tensors", model.tensors.ignored());
  json::Array notes;
  for (const std::string& note : model.index.notes) notes.emplace_back(note);
  description.facts.Set("notes", std::move(notes));
  return model;
}

Result<ModelDescription> DescribeModel(const std::string& model_folder, const std::vector<std::int32_t>& layers) {
  DRAFTMILL_ASSIGN_OR_RETURN(ModelFolder model, OpenModelFolder(model_folder, layers));
  return std::move(model.description);
}

}  // namespace draftmill
