"""Tiny random checkpoints of every model family, made by transformers, with every special feature of a family on.

`MODELS` maps a name to a function that gives the configuration. `make_checkpoint(folder, config)` writes it with weights
that bfloat16 holds exactly, so that both precisions run the same model, and that make every part of the model matter.
"""

import torch

ROPE_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32, "rope_theta": 10000.0}
ROPE_YARN = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 64,
             "rope_theta": 10000.0}
BASE = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=199, max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def llama(**changes):
    from transformers import LlamaConfig
    return LlamaConfig(**{**BASE, **changes})


def mistral(**changes):
    from transformers import MistralConfig
    return MistralConfig(**{**BASE, "head_dim": 32, "sliding_window": 17, **changes})


def qwen2(**changes):
    from transformers import Qwen2Config
    return Qwen2Config(**{**BASE, **changes})


def qwen3(**changes):
    from transformers import Qwen3Config
    return Qwen3Config(**{**BASE, "head_dim": 32, **changes})


def qwen3_moe(**changes):
    from transformers import Qwen3MoeConfig
    return Qwen3MoeConfig(**{**BASE, "head_dim": 32, "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
                             "norm_topk_prob": True, "mlp_only_layers": [1], "tie_word_embeddings": False, **changes})


def phi3(**changes):
    """Fused weights, partial rotation, longrope: some rows of the test are longer than 256, others are not."""
    from transformers import Phi3Config
    pairs = 6  # of head_dim 16, three quarters rotated
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0 + 0.1 * i for i in range(pairs)], "long_factor": [2.0 + 0.7 * i for i in range(pairs)]}
    return Phi3Config(**{**BASE, "tie_word_embeddings": False, "original_max_position_embeddings": 256, "rope_parameters": rope, **changes})


def gemma2(**changes):
    """A hidden size whose root is no bfloat16; both soft caps bind."""
    from transformers import Gemma2Config
    return Gemma2Config(**{**BASE, "hidden_size": 96, "head_dim": 32, "sliding_window": 17, "query_pre_attn_scalar": 24,
                           "attn_logit_softcapping": 5.0, "hidden_activation": "gelu_pytorch_tanh", **changes})


def gemma3(**changes):
    """One full layer among sliding ones, each with its own rotation; the full one scaled, as in the 4B and larger."""
    from transformers import Gemma3TextConfig
    rope = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    types = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    return Gemma3TextConfig(**{**BASE, "hidden_size": 96, "head_dim": 32, "sliding_window": 17, "query_pre_attn_scalar": 24,
                               "layer_types": types, "rope_parameters": rope, **changes})


def gpt_oss(**changes):
    from transformers import GptOssConfig
    rope = {**ROPE_YARN, "factor": 32.0, "rope_theta": 150000.0, "truncate": False}
    return GptOssConfig(**{**BASE, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 17,
                           "intermediate_size": 64, "rope_parameters": rope, "tie_word_embeddings": False,
                           "layer_types": ["sliding_attention", "full_attention"] * 2, "swiglu_limit": 1.5, **changes})


def deepseek_v3(**changes):
    """Grouped router, yarn whose two mscales differ, one dense layer."""
    from transformers import DeepseekV3Config
    rope = {**ROPE_YARN, "mscale": 0.7, "mscale_all_dim": 1.0}
    return DeepseekV3Config(**{**BASE, "num_key_value_heads": 4, "q_lora_rank": 40, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
                               "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 16, "num_experts_per_tok": 4,
                               "n_shared_experts": 2, "moe_intermediate_size": 40, "first_k_dense_replace": 1, "n_group": 4,
                               "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "rope_parameters": rope,
                               "rms_norm_eps": 1e-5, "tie_word_embeddings": False, **changes})


MODELS = {
    "llama": llama,
    "llama_no_grouping": lambda: llama(num_key_value_heads=4, tie_word_embeddings=False),
    "llama_one_kv_head_wide": lambda: llama(num_key_value_heads=1, head_dim=24),
    "llama_biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama_rope_llama3": lambda: llama(rope_parameters=ROPE_LLAMA3),
    "llama_rope_linear": lambda: llama(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
    "llama_rope_yarn": lambda: llama(rope_parameters=ROPE_YARN),
    "mistral_window": mistral,
    "qwen2": qwen2,
    "qwen2_windows_above": lambda: qwen2(use_sliding_window=True, sliding_window=17, max_window_layers=2),
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_moe_plain_weights": lambda: qwen3_moe(norm_topk_prob=False, mlp_only_layers=[], decoder_sparse_step=2),
    "phi3_longrope": phi3,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gpt_oss": gpt_oss,
    "deepseek_v3": deepseek_v3,
    "deepseek_v3_direct_queries": lambda: deepseek_v3(q_lora_rank=None, n_group=1, topk_group=1, n_shared_experts=1),
}

# One layer each in the published shapes; of the experts 16.
REAL_SIZE = {
    "llama_3_8b_layer": lambda: llama(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=8,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, tie_word_embeddings=False),
    "gpt_oss_layer": lambda: gpt_oss(
        hidden_size=2880, intermediate_size=2880, num_hidden_layers=1, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
        num_local_experts=16, num_experts_per_tok=4, sliding_window=128, swiglu_limit=7.0, layer_types=["sliding_attention"],
        rope_parameters={**ROPE_YARN, "factor": 32.0, "rope_theta": 150000.0, "truncate": False, "original_max_position_embeddings": 4096}),
    "kimi_k2_5_layer": lambda: deepseek_v3(
        hidden_size=7168, intermediate_size=18432, num_hidden_layers=1, num_attention_heads=64, num_key_value_heads=64, q_lora_rank=1536,
        kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=16, num_experts_per_tok=8,
        n_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=0, n_group=1, topk_group=1, routed_scaling_factor=2.827,
        rms_norm_eps=1e-5, rope_parameters={**ROPE_YARN, "factor": 64.0, "rope_theta": 50000.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                            "original_max_position_embeddings": 4096}),
}


def set_weights(model, seed=5):
    """Random weights under which norms, biases, sinks and routers all tell in the states."""
    torch.manual_seed(seed)
    centre = 0.0 if model.config.model_type.startswith("gemma") else 1.0  # Gemma's norms multiply with 1 + w
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if "norm" in name:
                tensor.copy_(torch.randn_like(tensor) * 0.3 + centre)
            elif name.endswith(("bias", "sinks")):
                tensor.copy_(torch.randn_like(tensor) * 0.3)
            elif isinstance(tensor, torch.nn.Parameter):
                # As wide as the tiny models' 0.12 at any width of the inputs.
                tensor.copy_(torch.randn_like(tensor) * min(0.12, 0.96 * model.config.hidden_size**-0.5))


def make_checkpoint(folder, config, seed=5):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    set_weights(model, seed)
    model.to(torch.bfloat16).to(torch.float32).save_pretrained(folder)
