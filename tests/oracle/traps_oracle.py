#!/usr/bin/env python3
"""The mistakes that engines make with these models, one test each: seen when put back, absent otherwise.

    traps_oracle.py --mutated-states build/stages/extract/mutated_states [TRAP...]

Each trap names a model of tiny_models.py and a mutation of its configuration inside draftmill (mutated_states.cc). In
float32 the right states lie within 1e-5 of transformers', those with the mistake more than ten times as far; where the
mistake is one of rounding, the right bfloat16 states lie nearer to transformers' own bfloat16 states than the others.
Exit: 0 all hold, 1 otherwise.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import states_oracle
import tiny_models as tiny

BOUND = 1e-5
ROUNDING = "rounding"
LENGTHS = (1, 2, 17, 40, 129, 300)

# name: (model, mutation, what is compared)
TRAPS = {
    "gemma_embedding_scale": (tiny.gemma2, "embedding_unscaled", None),
    "window_counts_the_query_itself": (tiny.mistral, "window_one_more", None),
    "window_by_layer": (tiny.gemma3, "window_on_every_layer", None),
    "head_dim_is_not_hidden_over_heads": (tiny.qwen3, "scale_from_hidden_size", None),
    "query_pre_attn_scalar": (tiny.gemma3, "scale_from_head_dim", None),
    "mscale_in_the_softmax_scale": (tiny.deepseek_v3, "scale_from_head_dim", None),
    "norm_weight_multiplied_in_bfloat16": (tiny.llama, "norm_weight_in_other_type", ROUNDING),
    "norm_weight_multiplied_in_float32": (tiny.gpt_oss, "norm_weight_in_other_type", ROUNDING),
    "norm_weight_is_one_plus_w": (tiny.gemma3, "norm_plain_weight", None),
    "latent_norm_eps": (lambda: tiny.deepseek_v3(rms_norm_eps=1e-2), "latent_eps_from_config", None),
    "yarn_truncate": (tiny.gpt_oss, "yarn_truncated", None),
    "yarn_scales_cos_and_sin": (tiny.gpt_oss, "cos_sin_unscaled", None),
    "rotation_of_interleaved_pairs": (tiny.deepseek_v3, "pairs_as_halves", None),
    "longrope_by_sequence_not_by_batch": (tiny.phi3, "longrope_by_batch", None),
    "local_rope_of_sliding_layers": (tiny.gemma3, "local_rope_ignored", None),
    "rope_parameters_of_version_5": (
        lambda: tiny.llama(rope_parameters={"rope_type": "default", "rope_theta": 500000.0}), "default_theta", None),
    "sinks_join_the_softmax": (tiny.gpt_oss, "sinks_ignored", None),
    "softcap_of_attention": (tiny.gemma2, "softcap_ignored", None),
    "swiglu_is_clamped": (tiny.gpt_oss, "swiglu_unclamped", None),
    "softmax_before_the_top_k": (lambda: tiny.qwen3_moe(norm_topk_prob=False), "softmax_over_chosen", None),
    "softmax_after_the_top_k": (tiny.gpt_oss, "softmax_over_chosen", None),
    "router_weights_renormalised": (tiny.qwen3_moe, "router_renormalised", None),
    "router_keeps_the_best_groups": (tiny.deepseek_v3, "router_without_groups", None),
    "router_scaling_factor": (tiny.deepseek_v3, "router_unscaled", None),
}


class Case:
    """A checkpoint, rows, and both programs' states of every layer."""

    def __init__(self, program, folder, config):
        self.program, self.folder = program, folder
        tiny.make_checkpoint(folder, config)
        generator = torch.Generator().manual_seed(9)
        self.samples = [torch.randint(0, config.vocab_size, (length,), generator=generator).tolist() for length in LENGTHS]
        (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in self.samples))
        self.layers = list(range(config.num_hidden_layers + 1))

    def reference(self, dtype):
        return torch.cat(states_oracle.reference_states(self.folder, self.samples, self.layers, dtype))

    def states(self, mutation, dtype):
        output = self.folder / "states.safetensors"
        subprocess.run([self.program, "--mutation", mutation, "--model", self.folder, "--input", self.folder / "rows.jsonl",
                        "--output", output, "--layers", ",".join(map(str, self.layers)), "--dtype", dtype], check=True)
        return load_file(output)["hidden_states"]


def trap_is_seen(case, mutation, kind):
    """(holds, figures)"""
    dtype = torch.bfloat16 if kind == ROUNDING else torch.float32
    expected = case.reference(dtype)
    right, wrong = (states_oracle.relative_errors(case.states(name, str(dtype).removeprefix("torch.")), expected)
                    for name in ("none", mutation))
    if kind == ROUNDING:
        return right.mean() < wrong.mean(), f"{right.mean():.2e} < {wrong.mean():.2e}"
    return right.max() <= BOUND and wrong.max() > 10 * BOUND, f"{right.max():.1e}, with the mistake {wrong.max():.1e}"


def last_state_is_pre_norm(program, folder):
    """transformers' own last hidden state is normed; ours is what enters the norm."""
    case = Case(program, folder, tiny.llama())
    ours = case.states("none", "float32")[:, -1]
    model = states_oracle.load(folder, torch.float32)
    with torch.inference_mode():
        normed = torch.cat([model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0] for ids in case.samples])
    distance = states_oracle.relative_errors(model.model.norm(ours).detach()[:, None], normed[:, None]).max()
    raw = states_oracle.relative_errors(ours[:, None], normed[:, None]).max()
    return distance <= BOUND < raw, f"normed {distance:.1e}, as stored {raw:.1e}"


def embedding_scale_is_rounded_first(program, folder):
    """Gemma: bfloat16(sqrt(H)) times the embedding, bit for bit."""
    case = Case(program, folder, tiny.gemma2())
    ours = case.states("none", "bfloat16")[:, 0]
    model = states_oracle.load(folder, torch.bfloat16)
    embedded = model.model.embed_tokens.weight.detach()[torch.tensor([token for ids in case.samples for token in ids])]
    root = torch.tensor(model.config.hidden_size**0.5)
    right = embedded * root.to(torch.bfloat16)
    late = (embedded.float() * root).to(torch.bfloat16)
    return torch.equal(ours, right) and not torch.equal(ours, late), "x_0 bit for bit"


def positions_restart_in_a_batch(program, folder):
    """Rows packed into one batch are each at position 0 again."""
    case = Case(program, folder, tiny.llama())
    ours = case.states("none", "float32")
    joined = states_oracle.reference_states(folder, [sum(case.samples, [])], case.layers, torch.float32)[0]
    right = states_oracle.relative_errors(ours, case.reference(torch.float32)).max()
    wrong = states_oracle.relative_errors(ours, joined).max()
    return right <= BOUND and wrong > 10 * BOUND, f"{right:.1e}, as one row {wrong:.1e}"


OTHERS = {test.__name__: test for test in (last_state_is_pre_norm, embedding_scale_is_rounded_first, positions_restart_in_a_batch)}


def run_trap(name, program, folder):
    if name in OTHERS:
        return OTHERS[name](program, folder)
    make_config, mutation, kind = TRAPS[name]
    return trap_is_seen(Case(program, folder, make_config()), mutation, kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutated-states", required=True)
    parser.add_argument("traps", nargs="*", metavar="TRAP")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for name in arguments.traps or [*TRAPS, *OTHERS]:
        with tempfile.TemporaryDirectory(prefix="draftmill-trap-") as folder:
            holds, figures = run_trap(name, arguments.mutated_states, Path(folder))
        good &= bool(holds)
        print(f"{name}: {figures}{'' if holds else '  FAILED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
