#include "stages/extract/model_family.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace draftmill {
namespace {

void ReadLlama(ConfigFields& fields, ModelConfig& config) {
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.o_bias = attention_bias;
  config.mlp_bias = fields.BoolOr("mlp_bias", false);
}

/// A window that is longer than any sequence binds nowhere; it is kept as the file says it.
void ReadMistral(ConfigFields& fields, ModelConfig& config) {
  if (fields.Find("sliding_window") == nullptr) return;
  config.sliding_window = fields.Integer("sliding_window", 1, std::int64_t{1} << 31);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

/// Qwen2 and Qwen3: a window only where use_sliding_window is true, then from max_window_layers on or by layer_types.
void ReadQwenWindow(ConfigFields& fields, ModelConfig& config) {
  if (!fields.BoolOr("use_sliding_window", false) || fields.Find("sliding_window") == nullptr) return;
  config.sliding_window = fields.Integer("sliding_window", 1, std::int64_t{1} << 31);
  const json::Value* types = fields.Find("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<std::int64_t>(types->as_array().size()) != config.num_layers)) {
    return fields.Fail(InvalidInput(fields.path() + ": layer_types must be a list with one entry a layer"));
  }
  const std::int64_t first = fields.Find("max_window_layers") == nullptr ? 28 : fields.Integer("max_window_layers", 0, 10000);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    bool sliding = layer >= first;
    if (types != nullptr) {
      const json::Value& type = types->as_array()[static_cast<std::size_t>(layer)];
      if (!type.is_string() || (type.as_string() != "sliding_attention" && type.as_string() != "full_attention")) {
        return fields.Fail(Unsupported(fields.path() + ": layer_types knows full_attention and sliding_attention only"));
      }
      sliding = type.as_string() == "sliding_attention";
    }
    if (sliding) config.sliding_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

void ReadQwen2(ConfigFields& fields, ModelConfig& config) {
  config.qkv_bias = true;
  ReadQwenWindow(fields, config);
}

void ReadQwen3(ConfigFields& fields, ModelConfig& config) {
  if (fields.Find("head_dim") == nullptr) config.head_dim = 128;
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.rope.rotary_dims = config.head_dim;
  config.qk_norm = true;
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.o_bias = attention_bias;
  ReadQwenWindow(fields, config);
}

constexpr std::array<const char*, 1> kLlamaNames = {"LlamaForCausalLM"};
constexpr std::array<const char*, 1> kMistralNames = {"MistralForCausalLM"};
constexpr std::array<const char*, 1> kQwen2Names = {"Qwen2ForCausalLM"};
constexpr std::array<const char*, 1> kQwen3Names = {"Qwen3ForCausalLM"};

constexpr std::array<ModelFamily, 4> kFamilies = {{
    {"llama", kLlamaNames, ReadLlama, 2048, 1e-6, false},
    {"mistral", kMistralNames, ReadMistral, 131072, 1e-6, false},
    {"qwen2", kQwen2Names, ReadQwen2, 32768, 1e-6, false},
    {"qwen3", kQwen3Names, ReadQwen3, 32768, 1e-6, false},
}};

void AddLinear(const std::string& name, std::int64_t out, std::int64_t in, bool bias, std::vector<ExpectedTensor>& tensors) {
  tensors.push_back({name + ".weight", {out, in}});
  if (bias) tensors.push_back({name + ".bias", {out}});
}

void AddLayer(const ModelConfig& config, std::int64_t layer, std::vector<ExpectedTensor>& tensors) {
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  const std::string attention = prefix + "self_attn.";
  tensors.push_back({prefix + "input_layernorm.weight", {config.hidden_size}});
  AddLinear(attention + "q_proj", config.q_width(), config.hidden_size, config.qkv_bias, tensors);
  AddLinear(attention + "k_proj", config.kv_width(), config.hidden_size, config.qkv_bias, tensors);
  AddLinear(attention + "v_proj", config.kv_width(), config.hidden_size, config.qkv_bias, tensors);
  if (config.qk_norm) {
    tensors.push_back({attention + "q_norm.weight", {config.head_dim}});
    tensors.push_back({attention + "k_norm.weight", {config.head_dim}});
  }
  AddLinear(attention + "o_proj", config.hidden_size, config.q_width(), config.o_bias, tensors);
  tensors.push_back({prefix + "post_attention_layernorm.weight", {config.hidden_size}});
  AddLinear(prefix + "mlp.gate_proj", config.intermediate_size, config.hidden_size, config.mlp_bias, tensors);
  AddLinear(prefix + "mlp.up_proj", config.intermediate_size, config.hidden_size, config.mlp_bias, tensors);
  AddLinear(prefix + "mlp.down_proj", config.hidden_size, config.intermediate_size, config.mlp_bias, tensors);
}

}  // namespace

std::span<const ModelFamily> ModelFamilies() { return kFamilies; }

const ModelFamily* FindFamily(std::string_view architecture) {
  for (const ModelFamily& family : kFamilies) {
    const auto& names = family.architectures;
    if (std::find(names.begin(), names.end(), architecture) != names.end()) return &family;
  }
  return nullptr;
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"embed_tokens.weight", {config.vocab_size, config.hidden_size}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) AddLayer(config, layer, tensors);
  tensors.push_back({"norm.weight", {config.hidden_size}});
  // A stored head is used even where the embeddings are tied; without one the embedding stands in.
  tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}, !config.tied_embeddings});
  return tensors;
}

bool IsIgnoredTensor(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".k_scale") || name.ends_with(".v_scale");
}

}  // namespace draftmill
