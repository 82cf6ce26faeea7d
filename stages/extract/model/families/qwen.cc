// Qwen2 and 2.5, Qwen3, Qwen3-MoE: modeling_qwen2.py, modeling_qwen3.py, modeling_qwen3_moe.py of transformers.
#include <algorithm>
#include <array>
#include <cmath>

#include "stages/extract/model/families/families.h"

namespace draftmill::families {
namespace {

constexpr std::int64_t kWindowOfClass = 4096;

/// A window counts only where use_sliding_window is true; then from max_window_layers on, or by layer_types.
void ReadWindow(ConfigFields& fields, ModelConfig& config) {
  if (!fields.BoolOr("use_sliding_window", false) || fields.IsNull("sliding_window")) return;
  config.sliding_window = fields.IntegerOr("sliding_window", 1, std::int64_t{1} << 31, kWindowOfClass);
  const std::int64_t first =
      fields.Find("max_window_layers") == nullptr ? 28 : fields.Integer("max_window_layers", 0, 10000);
  ReadSlidingLayers(
      fields, config, [](std::int64_t layer, std::int64_t from) { return layer >= from; }, first);
}

void ReadQwen2(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  config.qkv_bias = true;
  ReadPlainRope(fields, config);
  ReadWindow(fields, config);
}

/// Attention of Qwen3: heads have norms.
void ReadQwen3Attention(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  config.qk_norm = true;
  const bool attention_bias = fields.BoolOr("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.o_bias = attention_bias;
  ReadPlainRope(fields, config);
}

void ReadQwen3(ConfigFields& fields, ModelConfig& config) {
  ReadQwen3Attention(fields, config);
  ReadWindow(fields, config);
}

void ReadQwen3Moe(ConfigFields& fields, ModelConfig& config) {
  ReadQwen3Attention(fields, config);
  // Here the window is of every layer: the class knows no layer types.
  if (fields.BoolOr("use_sliding_window", false)) ReadWindowOfAllLayers(fields, config, kWindowOfClass);
  MixtureOfExperts moe;
  moe.scoring = RouterScoring::kSoftmax;
  moe.experts = fields.IntegerOr("num_experts", "num_local_experts", 1, 65536, 128);
  moe.top_k = fields.IntegerOr("num_experts_per_tok", 1, moe.experts, std::min<std::int64_t>(8, moe.experts));
  moe.expert_intermediate = fields.IntegerOr("moe_intermediate_size", 1, std::int64_t{1} << 20, 768);
  moe.renormalise = fields.BoolOr("norm_topk_prob", false);
  const std::int64_t step = fields.IntegerOr("decoder_sparse_step", 1, 10000, 1);
  const std::vector<std::int64_t> dense = fields.Integers("mlp_only_layers", 0, 10000);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    if (listed || (layer + 1) % step != 0) moe.dense_layers.push_back(static_cast<std::int32_t>(layer));
  }
  config.experts = std::move(moe);
}

constexpr std::array kQwen2Names = {"Qwen2ForCausalLM"};
constexpr std::array kQwen3Names = {"Qwen3ForCausalLM"};
constexpr std::array kQwen3MoeNames = {"Qwen3MoeForCausalLM"};
constexpr std::array kQwen2Types = {"qwen2"};
constexpr std::array kQwen3Types = {"qwen3"};
constexpr std::array kQwen3MoeTypes = {"qwen3_moe"};

}  // namespace

const ModelFamily kQwen2 = {.name = "qwen2",
                            .architectures = kQwen2Names,
                            .defaults = {.max_positions = 32768, .kv_heads = 32},
                            .read_fields = ReadQwen2,
                            .model_types = kQwen2Types};

const ModelFamily kQwen3 = {.name = "qwen3",
                            .architectures = kQwen3Names,
                            .defaults = {.max_positions = 32768, .kv_heads = 32, .head_dim = 128},
                            .read_fields = ReadQwen3,
                            .model_types = kQwen3Types};

// head_dim has no default of its own in this class: hidden_size / heads where the file is silent.
const ModelFamily kQwen3Moe = {.name = "qwen3_moe",
                               .architectures = kQwen3MoeNames,
                               .defaults = {.max_positions = 32768, .kv_heads = 4},
                               .read_fields = ReadQwen3Moe,
                               .model_types = kQwen3MoeTypes};

}  // namespace draftmill::families
