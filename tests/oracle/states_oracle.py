"""Hidden states as transformers computes them, and how far two sets of them lie apart."""

import torch

# Families whose attention sdpa cannot compute: sinks, soft caps.
EAGER = ("gpt_oss", "gemma2")


def load(folder, dtype):
    from transformers import AutoConfig, AutoModelForCausalLM
    eager = AutoConfig.from_pretrained(folder).model_type in EAGER
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager" if eager else "sdpa").eval()
    for module in model.modules():  # transformers up to 5.17 clamps at 7 whatever config.json says
        if hasattr(module, "limit") and hasattr(model.config, "swiglu_limit"):
            module.limit = model.config.swiglu_limit
    return model


def model_states(model, ids, layers, attention_mask=None):
    """x_k for k in layers of a [batch, tokens] input: [batch, tokens, layers, hidden]. x_n is before the final norm."""
    last = []
    hook = model.model.norm.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
    try:
        with torch.inference_mode():
            out = model.model(input_ids=ids, attention_mask=attention_mask, output_hidden_states=True, use_cache=False)
    finally:
        hook.remove()
    states = [*out.hidden_states[:-1], last[-1]]
    return torch.stack([states[k] for k in layers], dim=2)


def reference_states(folder, samples, layers, dtype):
    """One tensor [tokens, layers, hidden] for each sample, computed alone, in float32."""
    model = load(folder, dtype)
    return [model_states(model, torch.tensor([ids]), layers)[0].float() for ids in samples]


def relative_errors(states, exact):
    """Relative L2 error of each token and layer: [tokens, layers]."""
    exact = exact.double()
    return (states.double() - exact).norm(dim=-1) / exact.norm(dim=-1).clamp_min(1e-30)
