#include "stages/extract/model/model_family.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "stages/extract/model/families/families.h"

namespace draftmill {
namespace {

constexpr std::array<const ModelFamily*, 12> kFamilies = {
    &families::kLlama,    &families::kMistral, &families::kQwen2,      &families::kQwen3,
    &families::kQwen3Moe, &families::kPhi3,    &families::kGemma2,     &families::kGemma3Text,
    &families::kGemma3,   &families::kGptOss,  &families::kDeepseekV3, &families::kKimiK25,
};

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
    const auto& names = family->architectures;
    if (std::find(names.begin(), names.end(), architecture) != names.end()) return family;
  }
  return nullptr;
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
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with(".k_scale") || name.ends_with(".v_scale")) return true;
  for (const char* const other : config.family->ignored_prefixes) {
    if (name.starts_with(other)) return true;
  }
  if (!name.starts_with(prefix)) return false;
  const std::int64_t layer = LayerOf(name.substr(prefix.size()));
  return layer >= config.num_layers && layer < config.num_layers + config.mtp_layers;
}

}  // namespace draftmill
