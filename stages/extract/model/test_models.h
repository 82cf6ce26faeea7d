// A small configuration of every family, with all that is special about it switched on, for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace draftmill {

struct TestModel {
  const char* name;
  const char* config;
};

inline constexpr TestModel kTestModels[] = {
    {"llama",
     R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
      "vocab_size": 100, "max_position_embeddings": 512, "tie_word_embeddings": false, "attention_bias": true, "mlp_bias": true,
      "rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, "torch_dtype": "bfloat16"})"},
    {"mistral", R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 512, "sliding_window": 16, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16"})"},
    {"qwen2",
     R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "vocab_size": 100,
      "max_position_embeddings": 512, "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1,
      "tie_word_embeddings": true, "rope_theta": 1000000.0, "torch_dtype": "bfloat16"})"},
    {"qwen3",
     R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6,
      "vocab_size": 100, "max_position_embeddings": 512, "tie_word_embeddings": true, "rope_theta": 1000000.0,
      "torch_dtype": "bfloat16"})"},
    {"qwen3_moe", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "rms_norm_eps": 1e-6, "vocab_size": 100, "max_position_embeddings": 512, "num_experts": 8, "num_experts_per_tok": 3,
      "moe_intermediate_size": 32, "norm_topk_prob": true, "mlp_only_layers": [1], "decoder_sparse_step": 1,
      "rope_theta": 1000000.0, "torch_dtype": "bfloat16"})"},
    {"phi3", R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 100,
      "max_position_embeddings": 512, "original_max_position_embeddings": 64, "partial_rotary_factor": 0.75,
      "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
      "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]}, "sliding_window": 200, "rope_theta": 10000.0,
      "torch_dtype": "bfloat16"})"},
    {"gemma2",
     R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 96, "intermediate_size": 128,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6,
      "vocab_size": 100, "max_position_embeddings": 512, "sliding_window": 16, "query_pre_attn_scalar": 24,
      "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
      "torch_dtype": "bfloat16"})"},
    {"gemma3", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 96,
      "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "rms_norm_eps": 1e-6, "vocab_size": 100, "max_position_embeddings": 512, "sliding_window": 16,
      "sliding_window_pattern": 3, "query_pre_attn_scalar": 24, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "torch_dtype": "bfloat16"})"},
    {"gpt_oss",
     R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
      "vocab_size": 100, "max_position_embeddings": 512, "num_local_experts": 4, "num_experts_per_tok": 2,
      "sliding_window": 16, "swiglu_limit": 7.0, "rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 64, "truncate": false},
      "torch_dtype": "bfloat16"})"},
    {"deepseek_v3", R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
      "rms_norm_eps": 1e-5, "vocab_size": 100, "max_position_embeddings": 512, "q_lora_rank": 24, "kv_lora_rank": 32,
      "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3,
      "n_shared_experts": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
      "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}, "torch_dtype": "bfloat16"})"},
};

/// The configuration of one of them, by its family's name.
inline json::Value TestModelConfig(std::string_view name) {
  for (const TestModel& model : kTestModels) {
    if (name == model.name) return json::Parse(model.config).value();
  }
  return nullptr;
}

/// The same, quantised as config.json would say it.
inline json::Value QuantisedTestModel(std::string_view name, std::string_view quantization) {
  json::Value config = TestModelConfig(name);
  config.Set("quantization_config", json::Parse(quantization).value());
  return config;
}

inline constexpr const char* kTestFp8 =
    R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [24, 20]})";
inline constexpr const char* kTestInt4 = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
  "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"], "config_groups": {"experts": {"targets": ["Linear"],
  "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32}}}})";
inline constexpr const char* kTestMxfp4 = R"({"quant_method": "mxfp4",
  "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})";

}  // namespace draftmill
