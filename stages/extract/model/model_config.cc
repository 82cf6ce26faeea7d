#include "stages/extract/model/model_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "stages/extract/model/config_fields.h"
#include "stages/extract/model/families/families.h"
#include "stages/extract/model/layer_tensors.h"
#include "stages/extract/model/model_family.h"
#include "stages/extract/model/module_patterns.h"
#include "stages/extract/model/quantization_fields.h"
#include "state/file_system.h"

namespace draftmill {
namespace {

constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
constexpr int kMaxConfigDepth = 64;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;
/// Experts of all layers together; the largest published model has 23,040.
constexpr std::int64_t kMaxExperts = 100000;

Result<json::Value> ReadJsonFile(const std::string& path) {
  DRAFTMILL_ASSIGN_OR_RETURN(std::string text, RealFileSystem().ReadAll(path, kMaxConfigBytes));
  if (text.starts_with("version https://git-lfs")) {
    return InvalidInput(path + ": holds the pointer of Git LFS, not the file it stands for: fetch it (git lfs pull)");
  }
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
  for (const ModelFamily* family : ModelFamilies()) {
    for (const char* name : family->architectures) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return Unsupported(path + ": the architecture " + architecture +
                     " is not supported, and running it as a similar one would give wrong states. Nothing was "
                     "loaded. Name a model of one of these in model.path: " +
                     known);
}

void AppendIds(const json::Value* eos, std::vector<std::int64_t>& ids) {
  if (eos == nullptr) return;
  if (eos->is_integer()) ids.push_back(eos->as_integer());
  if (!eos->is_array()) return;
  for (const json::Value& id : eos->as_array()) {
    if (id.is_integer()) ids.push_back(id.as_integer());
  }
}

std::vector<std::int64_t> EosIds(const json::Value& config) {
  std::vector<std::int64_t> ids;
  AppendIds(config.Find("eos_token_id"), ids);
  return ids;
}

/// The id of the tokenizer's eos_token where its file lists added tokens.
std::vector<std::int64_t> TokenizerEosIds(const json::Value& tokenizer) {
  const json::Value* eos = tokenizer.Find("eos_token");
  if (eos != nullptr && eos->is_object()) eos = eos->Find("content");
  const json::Value* added = tokenizer.Find("added_tokens_decoder");
  if (eos == nullptr || !eos->is_string() || added == nullptr || !added->is_object()) return {};
  for (const auto& [id, token] : added->as_object()) {
    const json::Value* content = token.Find("content");
    if (content == nullptr || !content->is_string() || content->as_string() != eos->as_string()) continue;
    std::int64_t number = 0;
    const auto parsed = std::from_chars(id.data(), id.data() + id.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == id.data() + id.size()) return {number};
  }
  return {};
}

/// Notes the tokenizer's end token where no other file names it.
void AddTokenizerEos(const json::Value& tokenizer, ModelConfig& config) {
  for (const std::int64_t id : TokenizerEosIds(tokenizer)) {
    for (const auto& [file, ids] : config.eos_by_file) {
      if (std::find(ids.begin(), ids.end(), id) != ids.end()) return;
    }
    config.eos_by_file.emplace_back("tokenizer_config.json", std::vector<std::int64_t>{id});
  }
}

/// Refuses what people name instead of a model's folder: a file in it, or the place of a download cache that holds several.
Status CheckIsModelFolder(const std::string& model_folder) {
  const Result<FileInfo> info = RealFileSystem().Stat(model_folder);
  if (!info.ok()) return OkStatus();  // opening config.json says why
  if (!info->is_folder) {
    return InvalidInput(model_folder + ": is a file; name the folder that holds config.json and the weights");
  }
  const std::string snapshots = JoinPath(model_folder, "snapshots");
  if (RealFileSystem().Exists(JoinPath(model_folder, "config.json")) || !RealFileSystem().Exists(snapshots)) {
    return OkStatus();
  }
  return InvalidInput(model_folder + ": is a place of a download cache; name one of the revisions in " + snapshots);
}

/// How many key and value heads: absent means the class's default, null as many as there are heads.
void ReadHeads(ConfigFields& fields, ModelConfig& config) {
  const ClassDefaults& defaults = config.family->defaults;
  config.num_heads = defaults.heads > 0 ? fields.IntegerOr("num_attention_heads", 1, 65536, defaults.heads)
                                        : fields.Integer("num_attention_heads", 1, 65536);
  if (fields.Find("num_key_value_heads") != nullptr) {
    config.num_kv_heads = fields.Integer("num_key_value_heads", 1, config.num_heads);
  } else {
    const bool by_class = defaults.kv_heads > 0 && !fields.IsNull("num_key_value_heads");
    if (by_class) fields.NoteDefault("num_key_value_heads");
    config.num_kv_heads = by_class ? defaults.kv_heads : config.num_heads;
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.FailInput("num_attention_heads (" + std::to_string(config.num_heads) +
                     ") must be a multiple of num_key_value_heads (" + std::to_string(config.num_kv_heads) + ")");
  }
}

void ReadHeadDim(ConfigFields& fields, ModelConfig& config) {
  const std::int64_t of_class = config.family->defaults.head_dim;
  if (of_class == 0 && fields.Find("head_dim") == nullptr && config.hidden_size % config.num_heads != 0) {
    fields.FailInput("head_dim is missing and hidden_size is no multiple of num_attention_heads");
  }
  config.head_dim =
      fields.IntegerOr("head_dim", 2, 4096, of_class > 0 ? of_class : config.hidden_size / config.num_heads);
  if (config.head_dim % 2 != 0) fields.FailInput("head_dim must be even, got " + std::to_string(config.head_dim));
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
}

/// Fields that every family has. `top` is config.json where `fields` reads its text_config, else the same.
void ReadShared(ConfigFields& fields, ConfigFields& top, ModelConfig& config) {
  const ClassDefaults& defaults = config.family->defaults;
  config.model_type = top.TextOr("model_type", "");
  if (IsTypeOfAnotherClass(*config.family, config.model_type)) {
    fields.FailUnsupported("architectures says " + config.architecture + ", but model_type says " + config.model_type +
                           ", which is another class; which one is meant cannot be known");
  }
  config.hidden_size = fields.Integer("hidden_size", 2, kMaxWidth);
  config.num_layers = fields.Integer("num_hidden_layers", 1, 10000);
  config.intermediate_size = fields.Integer("intermediate_size", 1, kMaxWidth);
  config.vocab_size = defaults.vocab_size > 0 ? fields.IntegerOr("vocab_size", 1, kMaxVocabulary, defaults.vocab_size)
                                              : fields.Integer("vocab_size", 1, kMaxVocabulary);
  config.max_positions = fields.IntegerOr("max_position_embeddings", 1, kMaxPositions, defaults.max_positions);
  config.norm_eps = fields.NumberOr("rms_norm_eps", 0.0, 1.0, defaults.norm_eps);
  ConfigFields& tie = top.Find("tie_word_embeddings") != nullptr ? top : fields;
  if (tie.Find("tie_word_embeddings") == nullptr) fields.NoteDefault("tie_word_embeddings");
  config.tied_embeddings = tie.BoolOr("tie_word_embeddings", defaults.tied_embeddings);
  if (!fields.BoolOr("is_causal", true) || !top.BoolOr("is_causal", true)) {
    fields.FailUnsupported("is_causal is false; draftmill extracts states of causal models only");
  }
  ReadHeads(fields, config);
  // Heads of latent attention are wide as its own fields say; files of some writers give another number here.
  if (fields.Find("kv_lora_rank") == nullptr) ReadHeadDim(fields, config);
}

void ReadDtype(ConfigFields& fields, ConfigFields& top, ModelConfig& config) {
  std::string dtype;
  for (ConfigFields* section : {&top, &fields}) {
    for (const std::string_view name : {"dtype", "torch_dtype"}) {
      if (dtype.empty()) dtype = section->TextOr(name, "");
    }
  }
  config.dtype_stated = !dtype.empty();
  config.dtype = dtype.empty() ? "bfloat16" : dtype;
  if (config.dtype != "bfloat16" && config.dtype != "float16" && config.dtype != "float32") {
    fields.FailUnsupported("dtype " + config.dtype + " is not supported (known: bfloat16, float16, float32)");
  }
  config.compute = config.dtype == "float32" ? ComputeType::kFloat32 : ComputeType::kBfloat16;
}

/// The object that holds the text model's fields.
Result<const json::Value*> TextSection(const json::Value& config_json, const ModelFamily& family,
                                       const std::string& path) {
  if (family.text_model_types.empty()) return &config_json;
  const json::Value* text = config_json.Find("text_config");
  if (text == nullptr || !text->is_object()) return InvalidInput(path + ": text_config must be an object");
  const json::Value* type = text->Find("model_type");
  if (type == nullptr) return text;  // the wrapper's class takes the one that it knows
  const std::string name = type->is_string() ? type->as_string() : "(unnamed)";
  const auto& known = family.text_model_types;
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return Unsupported(path + ": text_config.model_type " + name + " is not supported under " +
                       family.architectures[0]);
  }
  return text;
}

/// Which of the layers' matrices the quantisation leaves as they were.
Status ResolveKept(ModelConfig& config) {
  if (config.quantization.not_quantised.empty() || config.quantization.method == QuantizationMethod::kMxfp4)
    return OkStatus();
  DRAFTMILL_ASSIGN_OR_RETURN(const ModulePatterns patterns, ModulePatterns::Compile(config.quantization));
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string& module : QuantisableModules(config, layer)) {
      DRAFTMILL_ASSIGN_OR_RETURN(const bool kept, patterns.Matches(module));
      if (kept) config.quantization.kept.insert(module);
    }
  }
  return OkStatus();
}

Status ReadQuantizationOf(const json::Value& config_json, const json::Value& text, const std::string& path,
                          ModelConfig& config) {
  DRAFTMILL_ASSIGN_OR_RETURN(config.quantization, ReadQuantization(config_json, path));
  if (config.quantization.method == QuantizationMethod::kNone) {
    DRAFTMILL_ASSIGN_OR_RETURN(config.quantization, ReadQuantization(text, path));
  }
  const bool experts_in_one = config.family->names.experts_in_one;
  const QuantizationMethod method = config.quantization.method;
  if (method != QuantizationMethod::kNone && experts_in_one != (method == QuantizationMethod::kMxfp4)) {
    return Unsupported(path + ": this quantisation (" + QuantizationName(method) +
                       ") is not supported for the family " + config.family->name + "; use the unquantised weights");
  }
  return OkStatus();
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const json::Value& config_json, const std::string& path) {
  if (!config_json.is_object()) return InvalidInput(path + ": must hold a JSON object");
  DRAFTMILL_ASSIGN_OR_RETURN(const std::string architecture, ReadArchitecture(config_json, path));
  const ModelFamily* const family = FindFamily(architecture);
  if (family == nullptr) return RefuseArchitecture(architecture, path);
  return ParseModelConfigAs(*family, config_json, path);
}

Result<ModelConfig> ParseModelConfigAs(const ModelFamily& family, const json::Value& config_json,
                                       const std::string& path) {
  ModelConfig config;
  DRAFTMILL_ASSIGN_OR_RETURN(config.architecture, ReadArchitecture(config_json, path));
  config.family = &family;
  config.nested_text_config = !config.family->text_model_types.empty();
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value* const text, TextSection(config_json, *config.family, path));
  DRAFTMILL_RETURN_IF_ERROR(ReadQuantizationOf(config_json, *text, path, config));
  ConfigFields fields(*text, path);
  ConfigFields top(config_json, path);
  ReadShared(fields, top, config);
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  config.family->read_fields(fields, config);
  families::CheckLayerTypes(fields, config);
  ReadDtype(fields, top, config);
  DRAFTMILL_RETURN_IF_ERROR(fields.status());
  DRAFTMILL_RETURN_IF_ERROR(top.status());
  if (config.experts.has_value() && config.experts->experts * config.num_layers > kMaxExperts) {
    return Unsupported(path + ": " + std::to_string(config.num_layers) + " layers of " +
                       std::to_string(config.experts->experts) + " experts are more than draftmill takes");
  }
  DRAFTMILL_RETURN_IF_ERROR(ResolveKept(config));
  config.taken_from_class_defaults = fields.defaults();
  std::vector<std::int64_t> eos = EosIds(config_json);
  config.eos_by_file.emplace_back("config.json", eos.empty() ? EosIds(*text) : std::move(eos));
  return config;
}

Result<ModelConfig> ReadModelConfig(const std::string& model_folder) {
  DRAFTMILL_RETURN_IF_ERROR(CheckIsModelFolder(model_folder));
  const std::string path = JoinPath(model_folder, "config.json");
  DRAFTMILL_ASSIGN_OR_RETURN(const json::Value config_json, ReadJsonFile(path));
  DRAFTMILL_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(config_json, path));
  DRAFTMILL_RETURN_IF_ERROR(RefuseQuantizationBeside(model_folder, config.quantization));
  const std::string generation_path = JoinPath(model_folder, "generation_config.json");
  if (RealFileSystem().Exists(generation_path)) {
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value generation, ReadJsonFile(generation_path));
    config.eos_by_file.emplace_back("generation_config.json", EosIds(generation));
  }
  const std::string tokenizer_path = JoinPath(model_folder, "tokenizer_config.json");
  if (RealFileSystem().Exists(tokenizer_path)) {
    DRAFTMILL_ASSIGN_OR_RETURN(const json::Value tokenizer, ReadJsonFile(tokenizer_path));
    AddTokenizerEos(tokenizer, config);
  }
  return config;
}

Result<std::vector<std::int32_t>> DefaultEagle3Layers(std::int64_t num_layers) {
  if (num_layers < 7) {
    return InvalidConfig(
        "a model of " + std::to_string(num_layers) +
        " layers has no default EAGLE-3 layers (2, n/2, n-3 and n must ascend): name them in extract.layers");
  }
  const auto n = static_cast<std::int32_t>(num_layers);
  return std::vector<std::int32_t>{2, n / 2, n - 3, n};
}

Result<std::vector<std::int32_t>> ResolveLayers(const std::vector<std::int32_t>& layers, std::int64_t num_layers) {
  if (layers.empty()) return DefaultEagle3Layers(num_layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] > num_layers) {
      return InvalidConfig("extract.layers: " + std::to_string(layers[i]) +
                           " is no layer index of this model (0 is the embedding's output, " +
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
