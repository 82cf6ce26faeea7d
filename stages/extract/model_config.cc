#include "stages/extract/model_config.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>

#include "stages/extract/config_fields.h"
#include "stages/extract/model_family.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
constexpr int kMaxConfigDepth = 64;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;

Result<json::Value> ReadJsonFile(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::string text, RealFileSystem().ReadAll(path, kMaxConfigBytes));
  json::ParseLimits limits;
  limits.max_depth = kMaxConfigDepth;
  Result<json::Value> value = json::Parse(text, limits);
  if (!value.ok()) return value.status().WithContext(path);
  if (!value.value().is_object()) return InvalidInput(path + ": must hold a JSON object");
  return value;
}

Result<std::string> ReadArchitecture(const json::Value& config, const std::string& path) {
  const json::Value* names = config.Find("architectures");
  if (names == nullptr || !names->is_array() || names->as_array().empty() || !names->as_array()[0].is_string()) {
    return InvalidInput(path + ": architectures must be a list with the name of the model class");
  }
  if (names->as_array().size() > 1) {
    return Unsupported(path + ": architectures names several classes; draftmill needs exactly one");
  }
  return names->as_array()[0].as_string();
}

Status RefuseArchitecture(const std::string& architecture, const std::string& path) {
  std::string known;
  for (const ModelFamily& family : ModelFamilies()) {
    for (const char* name : family.architectures) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return Unsupported(path + ": the architecture " + architecture +
                     " is not supported, and running it as a similar one would give wrong states. Nothing was "
                     "loaded. Name a model of one of these in model.path: " + known);
}

/// quantization_config of config.json, in any of its spellings.
Status RefuseQuantization(const json::Value& config, const std::string& path) {
  for (const std::string_view key : {"quantization_config", "quantization", "compression_config"}) {
    const json::Value* section = config.Find(key);
    if (section == nullptr || section->is_null()) continue;
    const json::Value* method = section->Find("quant_method");
    const std::string name = method != nullptr && method->is_string() ? method->as_string() : "without quant_method";
    return Unsupported(path + ": " + std::string(key) + " (" + name +
                       "): quantised checkpoints of this form are not supported; use the unquantised weights");
  }
  return OkStatus();
}

/// Quantisation that only a file beside config.json tells.
Status RefuseQuantizationBeside(const std::string& model_folder) {
  for (const std::string_view name : {"hf_quant_config.json", "quantize_config.json"}) {
    const std::string path = JoinPath(model_folder, name);
    if (!RealFileSystem().Exists(path)) continue;
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value content, ReadJsonFile(path));
    const json::Value* section = content.Find("quantization");
    const json::Value* algorithm = section == nullptr ? nullptr : section->Find("quant_algo");
    const std::string what = algorithm != nullptr && algorithm->is_string() ? algorithm->as_string() : "unnamed method";
    return Unsupported(path + ": says that the weights are quantised (" + what +
                       "), which config.json does not mention; this form is not supported, use the unquantised weights");
  }
  return OkStatus();
}

std::vector<std::int64_t> EosIds(const json::Value& config) {
  std::vector<std::int64_t> ids;
  const json::Value* eos = config.Find("eos_token_id");
  if (eos == nullptr) return ids;
  if (eos->is_integer()) ids.push_back(eos->as_integer());
  if (eos->is_array()) {
    for (const json::Value& id : eos->as_array()) {
      if (id.is_integer()) ids.push_back(id.as_integer());
    }
  }
  return ids;
}

void ReadLlama3(ConfigFields& scaling, RopeConfig& rope) {
  rope.low_freq_factor = scaling.NumberOr("low_freq_factor", 1e-6, 1e6, 1.0);
  rope.high_freq_factor = scaling.NumberOr("high_freq_factor", 1e-6, 1e6, 4.0);
  rope.original_max_positions = scaling.Integer("original_max_position_embeddings", 1, kMaxPositions);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    scaling.Fail(InvalidInput(scaling.path() + ": high_freq_factor must be larger than low_freq_factor"));
  }
}

/// The scaling part: `section` is rope_parameters (transformers 5) or rope_scaling (before).
Status ReadRopeScaling(const json::Value& section, const std::string& path, RopeConfig& rope) {
  ConfigFields scaling(section, path);
  const std::string type = scaling.TextOr("rope_type", scaling.TextOr("type", "default"));
  if (type == "default") return scaling.status();
  if (type != "linear" && type != "llama3") {
    return Unsupported(path + ": the RoPE type " + type + " is not supported for this family (known: default, linear, llama3)");
  }
  rope.type = type == "linear" ? RopeType::kLinear : RopeType::kLlama3;
  if (scaling.Find("factor") == nullptr) {
    return InvalidInput(path + ": the RoPE type " + type + " needs the field factor");
  }
  rope.factor = scaling.NumberOr("factor", 1e-6, 1e6, 1.0);
  if (rope.type == RopeType::kLlama3) ReadLlama3(scaling, rope);
  return scaling.status();
}

/// Both spellings: rope_parameters holding all, or rope_theta with rope_scaling.
void ReadRope(ConfigFields& fields, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.rotary_dims = config.head_dim;
  const json::Value* parameters = fields.Find("rope_parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return fields.Fail(InvalidInput(fields.path() + ": rope_parameters must be an object"));
  }
  if (parameters != nullptr) {
    for (const json::Member& member : parameters->as_object()) {
      if (member.second.is_object()) {
        return fields.Fail(Unsupported(fields.path() + ": rope_parameters by layer type (" + member.first +
                                       ") are not supported for this family"));
      }
    }
  }
  const json::Value* theta = parameters == nullptr ? nullptr : parameters->Find("rope_theta");
  if (theta != nullptr && theta->is_number()) {
    rope.theta = theta->as_double();
  } else {
    rope.theta = fields.NumberOr("rope_theta", 1.0, 1e12, 10000.0);
  }
  if (!(rope.theta >= 1.0 && rope.theta <= 1e12)) {
    return fields.Fail(InvalidInput(fields.path() + ": rope_theta must lie between 1 and 1e12"));
  }
  const json::Value* section = parameters != nullptr ? parameters : fields.Find("rope_scaling");
  if (section == nullptr) return;
  if (!section->is_object()) return fields.Fail(InvalidInput(fields.path() + ": rope_scaling must be an object"));
  fields.Fail(ReadRopeScaling(*section, fields.path() + ": " + (parameters != nullptr ? "rope_parameters" : "rope_scaling"),
                              rope));
}

void ReadHeads(ConfigFields& fields, ModelConfig& config) {
  config.num_heads = fields.Integer("num_attention_heads", 1, 65536);
  config.num_kv_heads = fields.Find("num_key_value_heads") == nullptr
                            ? config.num_heads
                            : fields.Integer("num_key_value_heads", 1, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.Fail(InvalidInput(fields.path() + ": num_attention_heads (" + std::to_string(config.num_heads) +
                             ") must be a multiple of num_key_value_heads (" + std::to_string(config.num_kv_heads) + ")"));
  }
  if (fields.Find("head_dim") == nullptr && config.hidden_size % config.num_heads != 0) {
    fields.Fail(InvalidInput(fields.path() + ": head_dim is missing and hidden_size is no multiple of num_attention_heads"));
  }
  config.head_dim = fields.IntegerOr("head_dim", 2, 4096, config.hidden_size / config.num_heads);
  if (config.head_dim % 2 != 0) {
    fields.Fail(InvalidInput(fields.path() + ": head_dim must be even, got " + std::to_string(config.head_dim)));
  }
}

void ReadShared(ConfigFields& fields, ModelConfig& config) {
  config.model_type = fields.TextOr("model_type", "");
  config.hidden_size = fields.Integer("hidden_size", 2, kMaxWidth);
  config.num_layers = fields.Integer("num_hidden_layers", 1, 10000);
  config.intermediate_size = fields.Integer("intermediate_size", 1, kMaxWidth);
  config.vocab_size = fields.Integer("vocab_size", 1, kMaxVocabulary);
  config.max_positions =
      fields.IntegerOr("max_position_embeddings", 1, kMaxPositions, config.family->default_max_positions);
  config.norm_eps = fields.NumberOr("rms_norm_eps", 0.0, 1.0, config.family->default_norm_eps);
  if (fields.Find("tie_word_embeddings") == nullptr) fields.NoteDefault("tie_word_embeddings");
  config.tied_embeddings = fields.BoolOr("tie_word_embeddings", config.family->default_tied_embeddings);
  const std::string activation = fields.TextOr("hidden_act", "silu");
  if (activation != "silu") {
    fields.Fail(Unsupported(fields.path() + ": hidden_act " + activation + " is not supported for this family (known: silu)"));
  }
  if (!fields.BoolOr("is_causal", true)) {
    fields.Fail(Unsupported(fields.path() + ": is_causal is false; draftmill extracts states of causal models only"));
  }
  ReadHeads(fields, config);
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  ReadRope(fields, config);
}

Status ReadDtype(ConfigFields& fields, ModelConfig& config) {
  config.dtype = fields.TextOr("dtype", fields.TextOr("torch_dtype", "bfloat16"));
  if (config.dtype != "bfloat16" && config.dtype != "float16" && config.dtype != "float32") {
    return Unsupported(fields.path() + ": dtype " + config.dtype + " is not supported (known: bfloat16, float16, float32)");
  }
  config.compute = config.dtype == "float32" ? ComputeType::kFloat32 : ComputeType::kBfloat16;
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const json::Value& config_json, const std::string& path) {
  if (!config_json.is_object()) return InvalidInput(path + ": must hold a JSON object");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string architecture, ReadArchitecture(config_json, path));
  ModelConfig config;
  config.architecture = architecture;
  config.family = FindFamily(architecture);
  if (config.family == nullptr) return RefuseArchitecture(architecture, path);
  DRAFTMILL_RETURN_IF_ERROR(RefuseQuantization(config_json, path));
  ConfigFields fields(config_json, path);
  ReadShared(fields, config);
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  config.family->read_fields(fields, config);
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  DRAFTMILL_RETURN_IF_ERROR(ReadDtype(fields, config));
  config.taken_from_class_defaults = fields.defaults();
  config.eos_by_file.emplace_back("config.json", EosIds(config_json));
  return config;
}

Result<ModelConfig> ReadModelConfig(const std::string& model_folder) {
  const std::string path = JoinPath(model_folder, "config.json");
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value config_json, ReadJsonFile(path));
  DRAFTMILL_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(config_json, path));
  DRAFTMILL_RETURN_IF_ERROR(RefuseQuantizationBeside(model_folder));
  const std::string generation_path = JoinPath(model_folder, "generation_config.json");
  if (RealFileSystem().Exists(generation_path)) {
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value generation, ReadJsonFile(generation_path));
    config.eos_by_file.emplace_back("generation_config.json", EosIds(generation));
  }
  return config;
}

Result<std::vector<std::int32_t>> DefaultEagle3Layers(std::int64_t num_layers) {
  if (num_layers < 7) {
    return InvalidConfig("a model of " + std::to_string(num_layers) +
                         " layers has no default EAGLE-3 layers (2, n/2, n-3 and n must ascend): name them in extract.layers");
  }
  const auto n = static_cast<std::int32_t>(num_layers);
  return std::vector<std::int32_t>{2, n / 2, n - 3, n};
}

Result<std::vector<std::int32_t>> ResolveLayers(const std::vector<std::int32_t>& layers, std::int64_t num_layers) {
  if (layers.empty()) return DefaultEagle3Layers(num_layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] > num_layers) {
      return InvalidConfig("extract.layers: " + std::to_string(layers[i]) + " is no layer index of this model (0 is the embedding's output, " +
                           std::to_string(num_layers) + " the last layer's)");
    }
    if (i > 0 && layers[i] <= layers[i - 1]) {
      return InvalidConfig("extract.layers must ascend without repetition; " + std::to_string(layers[i]) + " follows " +
                           std::to_string(layers[i - 1]));
    }
  }
  return layers;
}

}  // namespace draftmill
