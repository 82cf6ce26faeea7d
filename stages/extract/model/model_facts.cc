// What `doctor model --json` prints of a model: every derived number, under stable names.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "stages/extract/model/model_config.h"
#include "stages/extract/model/model_family.h"

namespace draftmill {
namespace {

json::Value InverseFrequencyFacts(const std::vector<double>& frequencies) {
  double sum = 0;
  for (const double frequency : frequencies) sum += frequency;
  json::Object facts;
  facts.emplace_back("count", static_cast<std::int64_t>(frequencies.size()));
  facts.emplace_back("first", frequencies.front());
  facts.emplace_back("middle", frequencies[frequencies.size() / 2]);
  facts.emplace_back("last", frequencies.back());
  facts.emplace_back("sum", sum);
  return facts;
}

json::Value RopeFacts(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  json::Object facts;
  facts.emplace_back("type", RopeTypeName(rope.type));
  facts.emplace_back("theta", rope.theta);
  facts.emplace_back("rotary_dims", rope.rotary_dims);
  facts.emplace_back("pairing", rope.interleaved ? "interleaved" : "halves");
  facts.emplace_back("parameters", config.rope_stated);
  facts.emplace_back("cos_sin_factor", rope.cos_sin_factor);
  if (rope.type == RopeType::kYarn) {
    const YarnRamp ramp = YarnRampOf(rope);
    facts.emplace_back("ramp_from", ramp.from);
    facts.emplace_back("ramp_to", ramp.to);
  }
  if (rope.type == RopeType::kLongRope) {
    facts.emplace_back("original_max_position_embeddings", rope.original_max_positions);
    facts.emplace_back("inv_freq_long", InverseFrequencyFacts(InverseFrequencies(rope, true)));
  }
  facts.emplace_back("inv_freq", InverseFrequencyFacts(InverseFrequencies(rope)));
  if (config.local_rope.has_value()) {
    json::Object local;
    local.emplace_back("type", RopeTypeName(config.local_rope->type));
    local.emplace_back("theta", config.local_rope->theta);
    local.emplace_back("inv_freq", InverseFrequencyFacts(InverseFrequencies(*config.local_rope)));
    facts.emplace_back("local", std::move(local));
  }
  return facts;
}

template <typename Integer>
json::Value IntegerList(const std::vector<Integer>& numbers) {
  json::Array list;
  for (const Integer number : numbers) list.emplace_back(static_cast<std::int64_t>(number));
  return list;
}

json::Value TextList(const std::vector<std::string>& texts) {
  json::Array list;
  for (const std::string& text : texts) list.emplace_back(text);
  return list;
}

json::Value WindowFacts(const ModelConfig& config) {
  if (config.sliding_layers.empty()) return nullptr;
  json::Object facts;
  facts.emplace_back("tokens_including_self", config.sliding_window);
  facts.emplace_back("layers", IntegerList(config.sliding_layers));
  facts.emplace_back("binds_within_max_position", config.sliding_window < config.max_positions);
  return facts;
}

json::Value LatentFacts(const LatentAttention& latent, double norm_eps) {
  json::Object facts;
  facts.emplace_back("q_lora_rank", latent.q_lora_rank);
  facts.emplace_back("kv_lora_rank", latent.kv_lora_rank);
  facts.emplace_back("qk_nope_head_dim", latent.nope_dim);
  facts.emplace_back("qk_rope_head_dim", latent.rope_dim);
  facts.emplace_back("v_head_dim", latent.v_dim);
  facts.emplace_back("latent_norm_eps_hf", latent.latent_norm_eps);
  facts.emplace_back("latent_norm_eps_fused", norm_eps);
  return facts;
}

const char* ScoringName(RouterScoring scoring) {
  switch (scoring) {
    case RouterScoring::kSoftmax: return "softmax";
    case RouterScoring::kSoftmaxChosen: return "softmax over the chosen";
    case RouterScoring::kSigmoidBiased: return "sigmoid";
  }
  return "unknown";
}

json::Value ExpertFacts(const ModelConfig& config) {
  if (!config.experts.has_value()) return nullptr;
  const MixtureOfExperts& moe = *config.experts;
  std::int64_t first_dense = 0;
  for (const std::int32_t layer : moe.dense_layers) first_dense += layer == first_dense ? 1 : 0;
  json::Object facts;
  facts.emplace_back("experts", moe.experts);
  facts.emplace_back("top_k", moe.top_k);
  facts.emplace_back("shared", moe.shared_experts);
  facts.emplace_back("moe_intermediate", moe.expert_intermediate);
  facts.emplace_back("first_dense", first_dense);
  facts.emplace_back("moe_layers", config.num_layers - static_cast<std::int64_t>(moe.dense_layers.size()));
  facts.emplace_back("dense_layers", IntegerList(moe.dense_layers));
  facts.emplace_back("scoring", ScoringName(moe.scoring));
  if (moe.scoring == RouterScoring::kSigmoidBiased) {
    facts.emplace_back("method", "noaux_tc");
    facts.emplace_back("groups", moe.groups);
    facts.emplace_back("groups_kept", moe.groups_kept);
    facts.emplace_back("scaling", moe.scaling);
  }
  facts.emplace_back("renormalise", moe.renormalise);
  return facts;
}

json::Value QuantizationFacts(const Quantization& quantization) {
  json::Object facts;
  facts.emplace_back("method", QuantizationName(quantization.method));
  switch (quantization.method) {
    case QuantizationMethod::kNone: return nullptr;
    case QuantizationMethod::kBlockFp8:
      facts.emplace_back("block", json::Array{quantization.block_rows, quantization.block_columns});
      facts.emplace_back("weight", "e4m3");
      if (!quantization.not_quantised.empty()) facts.emplace_back("kept", TextList(quantization.not_quantised));
      break;
    case QuantizationMethod::kPackedInt4:
      facts.emplace_back("format", "pack-quantized");
      facts.emplace_back("bits", 4);
      facts.emplace_back("group", quantization.block_columns);
      facts.emplace_back("symmetric", true);
      facts.emplace_back("not_quantised", TextList(quantization.not_quantised));
      break;
    case QuantizationMethod::kMxfp4:
      facts.emplace_back("block", quantization.block_columns);
      facts.emplace_back("kept", TextList(quantization.not_quantised));
      break;
  }
  return facts;
}

const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGeluTanh: return "gelu_pytorch_tanh";
    case Activation::kClampedSwiglu: return "clamped_swiglu";
  }
  return "unknown";
}

void AddShapeFacts(const ModelConfig& config, json::Object& facts) {
  facts.emplace_back("family", config.family->name);
  facts.emplace_back("architecture", config.architecture);
  facts.emplace_back("model_type", config.model_type);
  facts.emplace_back("nested_text_config", config.nested_text_config);
  facts.emplace_back("hidden_size", config.hidden_size);
  facts.emplace_back("layers", config.num_layers);
  facts.emplace_back("heads", config.num_heads);
  facts.emplace_back("kv_heads", config.num_kv_heads);
  facts.emplace_back("head_dim", config.head_dim);
  facts.emplace_back("intermediate_size", config.intermediate_size);
  facts.emplace_back("vocab_size", config.vocab_size);
  facts.emplace_back("max_position_embeddings", config.max_positions);
  facts.emplace_back("norm_eps", config.norm_eps);
  facts.emplace_back("norm_weight", config.norm_one_plus ? "1+w" : "w");
  facts.emplace_back("tied_embeddings", config.tied_embeddings);
}

void AddLayerFacts(const ModelConfig& config, json::Object& facts) {
  facts.emplace_back("activation", ActivationName(config.activation));
  if (config.activation == Activation::kClampedSwiglu) facts.emplace_back("swiglu_limit", config.swiglu_limit);
  if (config.embedding_scale != 1.0) facts.emplace_back("embedding_scale", config.embedding_scale);
  facts.emplace_back("qkv_bias", config.qkv_bias);
  facts.emplace_back("o_bias", config.o_bias);
  facts.emplace_back("qk_norm", config.qk_norm);
  facts.emplace_back("rope", RopeFacts(config));
  facts.emplace_back("softmax_scale", config.softmax_scale);
  if (config.attention_softcap != 0) facts.emplace_back("attention_soft_cap", config.attention_softcap);
  if (config.final_softcap != 0) facts.emplace_back("logit_soft_cap", config.final_softcap);
  facts.emplace_back("sliding_window", WindowFacts(config));
  facts.emplace_back("attention_sinks", config.attention_sinks);
  if (config.latent.has_value()) {
    facts.emplace_back("mla", LatentFacts(*config.latent, config.norm_eps));
    facts.emplace_back("mtp_layers_to_skip", config.mtp_layers);
  }
  facts.emplace_back("moe", ExpertFacts(config));
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
  AddShapeFacts(config, facts);
  AddLayerFacts(config, facts);
  facts.emplace_back("quantisation", QuantizationFacts(config.quantization));
  facts.emplace_back("dtype_in_config", config.dtype_stated ? json::Value(config.dtype) : json::Value(nullptr));
  facts.emplace_back("compute_dtype", config.compute == ComputeType::kFloat32 ? "float32" : "bfloat16");
  facts.emplace_back("taken_from_class_defaults", TextList(config.taken_from_class_defaults));
  AddEosFacts(config, facts);
  if (const auto layers = DefaultEagle3Layers(config.num_layers); layers.ok()) {
    facts.emplace_back("default_eagle3_layers", IntegerList(*layers));
  }
  return facts;
}

}  // namespace draftmill
