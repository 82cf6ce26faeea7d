#include "stages/extract/model/model_family.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "stages/extract/model/families/families.h"

namespace draftmill {
namespace {

constexpr std::array<const ModelFamily*, 13> kFamilies = {
    &families::kLlama,    &families::kMistral,    &families::kMistral3, &families::kQwen2,      &families::kQwen3,
    &families::kQwen3Moe, &families::kPhi3,       &families::kGemma2,   &families::kGemma3Text, &families::kGemma3,
    &families::kGptOss,   &families::kDeepseekV3, &families::kKimiK25,
};

/// Published classes near enough to a family's that their weights would pass for it, by model_type.
constexpr std::array kRelatives = {
    "apertus",    "arcee",      "cohere",           "cohere2",   "deepseek_v2", "deepseek_v32", "ernie4_5",
    "exaone4",    "gemma",      "gemma3n",          "glm",       "glm4",        "glm4_moe",     "granite",
    "granitemoe", "helium",     "hunyuan_v1_dense", "internlm3", "llama4",      "llama4_text",  "ministral",
    "ministral3", "mistral4",   "mixtral",          "nemotron",  "olmo",        "olmo2",        "olmo3",
    "olmoe",      "phi",        "phimoe",           "qwen2_moe", "qwen3_next",  "seed_oss",     "smollm3",
    "stablelm",   "starcoder2",
};

bool Contains(std::span<const char* const> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The layer of a name like "layers.61.eh_proj.weight"; -1 where it is of no layer.
std::int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return -1;
  std::int64_t layer = -1;
  const char* const begin = name.data() + kLayers.size();
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(begin, end, layer);
  return parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.' ? layer : -1;
}

}  // namespace

std::span<const ModelFamily* const> ModelFamilies() { return kFamilies; }

const ModelFamily* FindFamily(std::string_view architecture) {
  for (const ModelFamily* family : kFamilies) {
    if (Contains(family->architectures, architecture)) return family;
  }
  return nullptr;
}

bool IsTypeOfAnotherClass(const ModelFamily& family, std::string_view model_type) {
  if (family.model_types.empty() || Contains(family.model_types, model_type)) return false;
  if (Contains(kRelatives, model_type)) return true;
  return std::any_of(kFamilies.begin(), kFamilies.end(),
                     [model_type](const ModelFamily* other) { return Contains(other->model_types, model_type); });
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"embed_tokens.weight", {config.vocab_size, config.hidden_size}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    for (const LayerTensor& tensor : LayerTensors(config, layer)) {
      for (StoredTensor& stored : StoredTensors(config.quantization, tensor)) {
        tensors.push_back({prefix + stored.name, std::move(stored.shape), true, stored.role});
      }
    }
  }
  tensors.push_back({"norm.weight", {config.hidden_size}});
  // A stored head is used even where the embeddings are tied; without one the embedding stands in.
  tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}, !config.tied_embeddings});
  return tensors;
}

bool IsIgnoredTensor(const ModelConfig& config, std::string_view prefix, std::string_view name) {
  // Buffers follow from config.json: the newer classes make them anew, older ones (and other trainers) stored them.
  for (const std::string_view buffer : {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"}) {
    if (name.ends_with(buffer)) return true;
  }
  for (const std::string_view scale : {".k_scale", ".v_scale", ".kv_scale"}) {
    if (name.ends_with(scale)) return true;
  }
  for (const char* const other : config.family->ignored_prefixes) {
    if (name.starts_with(other)) return true;
  }
  if (!name.starts_with(prefix)) return false;
  const std::int64_t layer = LayerOf(name.substr(prefix.size()));
  return layer >= config.num_layers && layer < config.num_layers + config.mtp_layers;
}

}  // namespace draftmill
