// gpt-oss: modeling_gpt_oss.py of transformers and gpt_oss/torch/model.py of its publisher. Sinks in the softmax, windows in
// every other layer, biases everywhere, experts with a clamped SwiGLU whose gate and up rows are interleaved.
#include <algorithm>
#include <array>

#include "stages/extract/model/families/families.h"
#include "stages/extract/model/rope_fields.h"

namespace draftmill::families {
namespace {

void ReadExperts(ConfigFields& fields, ModelConfig& config) {
  MixtureOfExperts moe;
  moe.scoring = RouterScoring::kSoftmaxChosen;
  moe.experts = fields.IntegerOr("num_local_experts", "num_experts", 1, 65536, 128);
  moe.top_k = fields.IntegerOr("num_experts_per_tok", 1, moe.experts, std::min<std::int64_t>(4, moe.experts));
  moe.expert_intermediate = config.intermediate_size;
  moe.renormalise = true;
  moe.router_bias = true;
  moe.expert_bias = true;
  config.experts = std::move(moe);
}

/// The class's own rotation where the file has none at all: yarn from 4,096 positions on.
void ReadRotation(ConfigFields& fields, ModelConfig& config) {
  ReadPlainRope(fields, config);
  if (fields.Find("rope_parameters") != nullptr || fields.Find("rope_scaling") != nullptr) return;
  fields.NoteDefault("rope_scaling");
  config.rope.type = RopeType::kYarn;
  config.rope.factor = 32.0;
  config.rope.truncate = false;
  config.rope.original_max_positions = 4096;
  config.rope.cos_sin_factor = YarnMscale(config.rope.factor, 1.0);
}

void ReadGptOss(ConfigFields& fields, ModelConfig& config) {
  RequireSilu(fields);
  config.activation = Activation::kClampedSwiglu;
  config.swiglu_limit = fields.Find("swiglu_limit") == nullptr ? 7.0 : fields.NumberOr("swiglu_limit", 1e-3, 1e6, 7.0);
  if (fields.Find("swiglu_alpha") != nullptr && fields.NumberOr("swiglu_alpha", 0, 1e6, 1.702) != 1.702) {
    fields.FailUnsupported("swiglu_alpha must be 1.702");
  }
  config.norm_multiplies_in_float = true;
  config.attention_sinks = true;
  config.qkv_bias = fields.BoolOr("attention_bias", true);
  config.o_bias = config.qkv_bias;
  ReadRotation(fields, config);
  ReadAlternatingWindow(fields, config, 128, 2);
  ReadExperts(fields, config);
}

constexpr std::array kNames = {"GptOssForCausalLM"};
constexpr std::array kTypes = {"gpt_oss"};

}  // namespace

const ModelFamily kGptOss = {
    .name = "gpt_oss",
    .architectures = kNames,
    .defaults = {.max_positions = 131072, .norm_eps = 1e-5, .kv_heads = 8, .head_dim = 64, .rope_theta = 150000.0},
    .read_fields = ReadGptOss,
    .names = {.router = "mlp.router", .experts_in_one = true},
    .model_types = kTypes};

}  // namespace draftmill::families
