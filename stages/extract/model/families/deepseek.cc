// DeepSeek-V3, Kimi-K2, and Kimi-K2.5's text part: modeling_deepseek_v3.py of transformers, inference/model.py of
// DeepSeek-V3. Latent attention, sigmoid routers with a correction bias, shared experts, dense first layers.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

constexpr std::int64_t kMaxRank = std::int64_t{1} << 20;

void ReadLatentAttention(ConfigFields& fields, ModelConfig& config) {
  LatentAttention latent;
  // null means that q comes directly; a file that leaves the field out means the class's 1,536.
  latent.q_lora_rank = fields.IsNull("q_lora_rank") ? 0 : fields.IntegerOr("q_lora_rank", 1, kMaxRank, 1536);
  latent.kv_lora_rank = fields.IntegerOr("kv_lora_rank", 1, kMaxRank, 512);
  latent.nope_dim = fields.IntegerOr("qk_nope_head_dim", 1, 4096, 128);
  latent.rope_dim = fields.IntegerOr("qk_rope_head_dim", 2, 4096, 64);
  latent.v_dim = fields.IntegerOr("v_head_dim", 1, 4096, 128);
  if (latent.rope_dim % 2 != 0) fields.FailInput("qk_rope_head_dim must be even");
  if (config.num_kv_heads != config.num_heads) {
    fields.FailUnsupported("num_key_value_heads must be num_attention_heads: latent attention has no groups");
  }
  if (fields.BoolOr("attention_bias", false))
    fields.FailUnsupported("attention_bias is not supported with latent attention");
  config.head_dim = latent.nope_dim + latent.rope_dim;
  config.latent = latent;
}

void ReadRotation(ConfigFields& fields, ModelConfig& config) {
  RopeFields read = ReadRope(fields, config.latent->rope_dim, {.max_positions = config.max_positions});
  read.rope.interleaved = fields.BoolOr("rope_interleave", true);
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (read.mscale_all_dim != 0) {
    const double mscale = YarnMscale(read.rope.factor, read.mscale_all_dim);
    config.softmax_scale *= mscale * mscale;
  }
  config.rope = std::move(read.rope);
  config.rope_stated = std::move(read.stated);
}

void ReadRouter(ConfigFields& fields, MixtureOfExperts& moe) {
  moe.scoring = RouterScoring::kSigmoidBiased;
  if (const std::string scoring = fields.TextOr("scoring_func", "sigmoid"); scoring != "sigmoid") {
    fields.FailUnsupported("scoring_func " + scoring + " is not supported for this family (known: sigmoid)");
  }
  if (const std::string method = fields.TextOr("topk_method", "noaux_tc"); method != "noaux_tc") {
    fields.FailUnsupported("topk_method " + method + " is not supported for this family (known: noaux_tc)");
  }
  // null means that experts are chosen among all; a file that leaves the field out means the class's groups.
  moe.groups = fields.IsNull("n_group") ? 1 : fields.IntegerOr("n_group", 1, moe.experts, 8);
  moe.groups_kept = fields.IsNull("topk_group")
                        ? moe.groups
                        : fields.IntegerOr("topk_group", 1, moe.groups, std::min<std::int64_t>(4, moe.groups));
  if (moe.experts % moe.groups != 0) fields.FailInput("n_routed_experts must be a multiple of n_group");
  if (moe.groups > 1 && moe.experts / moe.groups < 2)
    fields.FailInput("n_group leaves fewer than two experts in a group");
  if (moe.top_k > moe.experts / moe.groups * moe.groups_kept) {
    fields.FailInput("num_experts_per_tok is larger than the number of experts in topk_group groups");
  }
  moe.renormalise = fields.BoolOr("norm_topk_prob", true);
  moe.scaling = fields.NumberOr("routed_scaling_factor", 1e-6, 1e6, 2.5);
}

void ReadExperts(ConfigFields& fields, ModelConfig& config) {
  MixtureOfExperts moe;
  moe.experts = fields.IntegerOr("n_routed_experts", "num_local_experts", 1, 65536, 256);
  moe.top_k = fields.IntegerOr("num_experts_per_tok", 1, moe.experts, std::min<std::int64_t>(8, moe.experts));
  moe.shared_experts = fields.IsNull("n_shared_experts") ? 0 : fields.IntegerOr("n_shared_experts", 0, 1024, 1);
  moe.expert_intermediate = fields.IntegerOr("moe_intermediate_size", 1, kMaxRank, 2048);
  ReadRouter(fields, moe);
  const std::int64_t first = fields.IntegerOr("first_k_dense_replace", 0, 10000, 3);
  const std::int64_t frequency =
      fields.Find("moe_layer_freq") == nullptr ? 1 : fields.Integer("moe_layer_freq", 1, 10000);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (layer < first || layer % frequency != 0) moe.dense_layers.push_back(static_cast<std::int32_t>(layer));
  }
  config.experts = std::move(moe);
}

void ReadDeepseek(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  ReadLatentAttention(fields, config);
  if (!fields.status().ok()) return;
  ReadRotation(fields, config);
  ReadExperts(fields, config);
  config.mtp_layers = fields.IntegerOr("num_nextn_predict_layers", "num_mtp_layers", 0, 1000, 1);
}

constexpr std::array kDeepseekNames = {"DeepseekV3ForCausalLM"};
constexpr std::array kKimiK25Names = {"KimiK25ForConditionalGeneration"};
constexpr std::array kKimiK25TextTypes = {"kimi_k2", "deepseek_v3"};
constexpr std::array kKimiK25OtherParts = {"vision_tower.", "mm_projector."};
constexpr std::array kDeepseekTypes = {"deepseek_v3", "kimi_k2"};
constexpr std::array kKimiK25Types = {"kimi_k25"};

constexpr ClassDefaults kDefaults = {.max_positions = 4096};

}  // namespace

const ModelFamily kDeepseekV3 = {.name = "deepseek_v3",
                                 .architectures = kDeepseekNames,
                                 .defaults = kDefaults,
                                 .read_fields = ReadDeepseek,
                                 .model_types = kDeepseekTypes};

const ModelFamily kKimiK25 = {.name = "kimi_k25",
                              .architectures = kKimiK25Names,
                              .defaults = kDefaults,
                              .read_fields = ReadDeepseek,
                              .text_model_types = kKimiK25TextTypes,
                              .model_types = kKimiK25Types,
                              .ignored_prefixes = kKimiK25OtherParts};

}  // namespace draftmill::families
