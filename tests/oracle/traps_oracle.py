#!/usr/bin/env python3
"""The mistakes that engines make with these models, one test each: seen when put back, absent otherwise.

    traps_oracle.py --mutated-states build/stages/extract/mutated_states --draftmill build/draftmill [TRAP...]

A mistake is put back in one of three ways:

* CONFIGURATION: a mutation of the model's configuration inside draftmill (mutated_states.cc).
* WEIGHTS: the checkpoint is rewritten so that draftmill multiplies what an engine with the mistake would have read.
* REFERENCE: where no input can bring a rounding about, transformers' own code is made to round in the mistaken place; then
  the states must lie nearer to transformers as it is than to transformers with the mistake.

In float32 the right states lie within 1e-5 of transformers', those with the mistake more than ten times as far; where the
mistake is one of rounding, the right bfloat16 states lie nearer to transformers' own bfloat16 states than the others.
Exit: 0 all hold, 1 otherwise.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

import quantised_weights
import states_oracle
import tiny_models as tiny

BOUND = 1e-5
ROUNDING = "rounding"
LENGTHS = (1, 2, 17, 40, 129, 300)

# name: (model, mutation, what is compared)
CONFIGURATION = {
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
        self.program, self.folder, self.config = program, folder, config
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

    def rewrite_weights(self, change):
        """change(tensors): the file's tensors by name, to be altered in place."""
        path = self.folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})

    def rewrite_config(self, **changes):
        path = self.folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def far_apart(right, wrong):
    """(holds, figures) of float32 errors without the mistake and with it."""
    return right.max() <= BOUND and wrong.max() > 10 * BOUND, f"{right.max():.1e}, with the mistake {wrong.max():.1e}"


def configuration_trap(case, mutation, kind):
    dtype = torch.bfloat16 if kind == ROUNDING else torch.float32
    expected = case.reference(dtype)
    right, wrong = (states_oracle.relative_errors(case.states(name, str(dtype).removeprefix("torch.")), expected)
                    for name in ("none", mutation))
    if kind == ROUNDING:
        return right.mean() < wrong.mean(), f"{right.mean():.2e} < {wrong.mean():.2e}"
    return far_apart(right, wrong)


# ---- weights as a mistaken engine would read them --------------------------------------------------------------------


def halves_as_pairs(tensors):
    """gpt-oss: gate is the first half of the columns and up the second, where they alternate."""
    for name, tensor in tensors.items():
        if ".experts.gate_up_proj" in name:
            tensors[name] = torch.stack(tensor.chunk(2, dim=-1), dim=-1).flatten(-2)


def pairs_as_halves(tensors):
    """Phi-3: gate and up alternate, where gate is the first half of the rows."""
    for name, tensor in tensors.items():
        if name.endswith("mlp.gate_up_proj.weight"):
            tensors[name] = torch.cat([tensor[0::2], tensor[1::2]])


def query_groups_interleaved(tensors):
    """Phi-3: each KV head's rows of q, k and v stand together, where all of q come first."""
    for name, tensor in tensors.items():
        if name.endswith("self_attn.qkv_proj.weight"):  # 4 heads and 2 KV heads of 16
            groups = tensor.view(2, 4, 16, -1)
            tensors[name] = torch.cat([groups[:, :2].flatten(0, 2), groups[:, 2].flatten(0, 1), groups[:, 3].flatten(0, 1)])


def row_parallel_biases_twice(tensors):
    """A part of each product on either of two ranks, the bias on both."""
    found = [name for name in tensors if name.endswith(("o_proj.bias", "down_proj.bias", "down_proj_bias"))]
    assert found
    for name in found:
        tensors[name] = 2 * tensors[name]


WEIGHTS = {
    "gpt_oss_gate_and_up_alternate": (tiny.gpt_oss, halves_as_pairs),
    "phi_gate_and_up_are_stacked": (tiny.phi3, pairs_as_halves),
    "phi_q_k_v_are_stacked": (tiny.phi3, query_groups_interleaved),
    "bias_of_row_parallel_layers_once": (lambda: tiny.llama(attention_bias=True, mlp_bias=True), row_parallel_biases_twice),
    "bias_of_experts_once": (tiny.gpt_oss, row_parallel_biases_twice),
}


def weights_trap(case, mistake):
    expected = case.reference(torch.float32)
    right = states_oracle.relative_errors(case.states("none", "float32"), expected)
    case.rewrite_weights(mistake)
    return far_apart(right, states_oracle.relative_errors(case.states("none", "float32"), expected))


# ---- formats of quantised weights ------------------------------------------------------------------------------------


def scale_divides(tensors):
    for name in [name for name in tensors if name.endswith("weight_scale_inv")]:
        tensors[name] = 1 / tensors[name]


def highest_nibble_first(tensors):
    for name in [name for name in tensors if name.endswith("weight_packed")]:
        words = tensors[name].to(torch.int64) & 0xFFFFFFFF
        turned = sum((words >> (4 * k) & 15) << (4 * (7 - k)) for k in range(8))
        tensors[name] = torch.where(turned >= 2**31, turned - 2**32, turned).to(torch.int32)


def nibbles_are_twos_complement(tensors):
    for name in [name for name in tensors if name.endswith("weight_packed")]:
        tensors[name] = tensors[name] ^ torch.tensor(-0x77777778, dtype=torch.int32)


def mxfp4_high_nibble_first(tensors):
    for name in [name for name in tensors if name.endswith("_blocks")]:
        tensors[name] = tensors[name] >> 4 | tensors[name] << 4


# name: (arguments of quantised_weights.write_pair, mistake)
QUANTISED = {
    "weight_scale_inv_is_a_multiplier": (tiny.deepseek_v3, "fp8", scale_divides),
    "int4_lowest_nibble_first": (lambda: tiny.llama(intermediate_size=128), "int4", highest_nibble_first),
    "int4_nibbles_are_offset_by_eight": (lambda: tiny.llama(intermediate_size=128), "int4", nibbles_are_twos_complement),
    "mxfp4_low_nibble_first": (tiny.gpt_oss, "mxfp4", mxfp4_high_nibble_first),
}


def quantised_trap(program, folder, make_config, method, mistake):
    case = Case(program, folder / "case", make_config())
    quantised_weights.write_pair(folder, case.config, method)
    states = {}
    for name in ("plain", "quantised", "mistaken"):
        if name == "mistaken":
            case.rewrite_weights(mistake)
        else:
            for file in ("config.json", "model.safetensors"):
                (case.folder / file).write_bytes((folder / name / file).read_bytes())
        states[name] = case.states("none", "bfloat16")
    same = torch.equal(states["quantised"].view(torch.int16), states["plain"].view(torch.int16))
    wrong = states_oracle.relative_errors(states["mistaken"].float(), states["plain"].float()).nan_to_num(nan=1e9).max()
    return same and wrong > 0.1, f"{'the same bytes' if same else 'OTHER BYTES'}, with the mistake {wrong:.1e}"


# ---- roundings that only the reference can be made to get wrong --------------------------------------------------------


@contextlib.contextmanager
def router_in_bfloat16():
    """DeepSeek-V3's router multiplies float32; this one rounds its logits."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as modeling
    linear = torch.nn.functional.linear
    rounded = mock.Mock(wraps=modeling.F, linear=lambda a, weight: linear(a, weight).to(torch.bfloat16).float())
    with mock.patch.object(modeling, "F", rounded):
        yield


@contextlib.contextmanager
def cos_and_sin_in_float32():
    from transformers.models.llama import modeling_llama as modeling
    apply = modeling.apply_rotary_pos_emb
    forward = modeling.LlamaRotaryEmbedding.forward

    def in_float(q, k, cos, sin, *more, **named):
        return tuple(rotated.to(q.dtype) for rotated in apply(q.float(), k.float(), cos, sin, *more, **named))

    def in_float_too(self, x, position_ids):
        return forward(self, x.float(), position_ids)

    with mock.patch.object(modeling, "apply_rotary_pos_emb", in_float), \
            mock.patch.object(modeling.LlamaRotaryEmbedding, "forward", in_float_too):
        yield


def experts_alone(case):
    """x_1 is the embedding and what routed experts add: no other rounding hides theirs."""
    def no_attention(tensors):
        for name in [name for name in tensors if name.endswith("o_proj.weight")]:
            tensors[name] = torch.zeros_like(tensors[name])
    case.rewrite_weights(no_attention)
    case.layers = [1]


# name: (model, what is changed in its checkpoint, mistake)
REFERENCE = {
    "router_in_float32": (lambda: tiny.deepseek_v3(first_k_dense_replace=0), experts_alone, router_in_bfloat16),
    "cos_and_sin_cast_to_bfloat16": (tiny.llama, None, cos_and_sin_in_float32),
}


def reference_trap(case, prepare, mistake):
    if prepare is not None:
        prepare(case)
    ours = case.states("none", "bfloat16")
    right = states_oracle.relative_errors(ours, case.reference(torch.bfloat16)).mean()
    with mistake():
        wrong = states_oracle.relative_errors(ours, case.reference(torch.bfloat16)).mean()
    return right < wrong, f"{right:.2e} < {wrong:.2e}"


# ---- others ------------------------------------------------------------------------------------------------------------


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
    joined = states_oracle.reference_states(folder, [[token for sample in case.samples for token in sample]], case.layers, torch.float32)[0]
    right = states_oracle.relative_errors(ours, case.reference(torch.float32)).max()
    wrong = states_oracle.relative_errors(ours, joined).max()
    return right <= BOUND and wrong > 10 * BOUND, f"{right:.1e}, as one row {wrong:.1e}"


def mtp_layers_are_skipped(program, folder):
    """Tensors of one more layer than num_hidden_layers are no layer; an engine that runs them has another last state."""
    case = Case(program, folder, tiny.deepseek_v3())
    depth, expected = case.config.num_hidden_layers, case.reference(torch.float32)
    hidden = case.config.hidden_size

    def add_layer(tensors):
        for name in [name for name in tensors if name.startswith(f"model.layers.{depth - 1}.")]:
            tensors[name.replace(f".{depth - 1}.", f".{depth}.", 1)] = tensors[name].flip(0)

    def add_prediction(tensors):
        tensors[f"model.layers.{depth}.eh_proj.weight"] = torch.ones(hidden, 2 * hidden)
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"model.layers.{depth}.{norm}.weight"] = torch.ones(hidden)

    case.rewrite_weights(add_layer)
    case.rewrite_config(num_hidden_layers=depth + 1)
    case.layers = list(range(1, depth + 2))
    wrong = states_oracle.relative_errors(case.states("none", "float32")[:, -1:], expected[:, -1:])
    case.rewrite_weights(add_prediction)
    case.rewrite_config(num_hidden_layers=depth, num_nextn_predict_layers=1)
    case.layers = list(range(depth + 1))
    return far_apart(states_oracle.relative_errors(case.states("none", "float32"), expected), wrong)


OTHERS = {test.__name__: test for test in (last_state_is_pre_norm, embedding_scale_is_rounded_first, positions_restart_in_a_batch,
                                           mtp_layers_are_skipped)}


# ---- the command itself ----------------------------------------------------------------------------------------------


def head_agreement(draftmill, folder):
    """At how many of the examined positions of reference.safetensors the head chooses the next token; the share."""
    done = subprocess.run([draftmill, "doctor", "model", folder, "--reference", folder / "reference.safetensors", "--dtype", "float32",
                           "--json"], check=False, capture_output=True, text=True)
    agreement = json.loads(done.stdout)["examination"]["head_agreement"]
    return agreement["as_stored"] / agreement["positions"]


def head_trap(draftmill, folder, tied, mistake):
    """On rows that the model itself chose, token by token, its head is always right."""
    case = Case(draftmill, folder, tiny.llama(tie_word_embeddings=tied))
    model = states_oracle.load(folder, torch.float32)
    rows = [model.generate(torch.tensor([[start]]), do_sample=False, min_new_tokens=40, max_new_tokens=40, eos_token_id=None)[0].tolist()
            for start in (3, 50, 77, 190)]
    states = torch.cat([states_oracle.model_states(model, torch.tensor([ids]), case.layers)[0] for ids in rows])
    bounds = torch.tensor([0, *(len(ids) for ids in rows)]).cumsum(0)
    ids = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
    save_file({"hidden_states": states.contiguous(), "input_ids": ids, "cu_seqlens": bounds},
              folder / "reference.safetensors", metadata={"layers": json.dumps(case.layers)})
    right = head_agreement(draftmill, folder)
    case.rewrite_weights(mistake)
    wrong = head_agreement(draftmill, folder)
    return right == 1 and wrong < 0.5, f"right at {right:.0%}, with the mistake {wrong:.0%}"


def tied_embedding_is_the_head(draftmill, folder):
    """The mistake: a tied model's head left at random values."""
    def random_head(tensors):
        tensors["lm_head.weight"] = torch.randn_like(tensors["model.embed_tokens.weight"])
    return head_trap(draftmill, folder, True, random_head)


def untied_head_is_not_the_embedding(draftmill, folder):
    def embedding_as_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    return head_trap(draftmill, folder, False, embedding_as_head)


def bos_of_template_and_tokenizer_once(draftmill, folder):
    """A tokenizer whose post-processor adds what the chat template wrote already."""
    from tokenizers import AddedToken, Tokenizer, models, processors
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "a": 1, "b": 2}, []))
    tokenizer.add_special_tokens([AddedToken("<s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat.jinja").write_text("<s>{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "rows.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}]}))
    done = subprocess.run([draftmill, "tokenize", "--tokenizer", folder / "tokenizer.json", "--template", folder / "chat.jinja",
                           "--param", "min_supervised_tokens=1", folder / "rows.jsonl"], check=True, capture_output=True, text=True)
    line = json.loads(done.stdout)
    doubled = tokenizer.encode(line["text"]).ids
    return line["input_ids"] == [0, 1, 2, 2, 1] and doubled == [0, 0, 1, 2, 2, 1], f"{line['input_ids']}, with the mistake {doubled}"


COMMAND = {test.__name__: test for test in (tied_embedding_is_the_head, untied_head_is_not_the_embedding,
                                            bos_of_template_and_tokenizer_once)}


def run_trap(name, arguments, folder):
    if name in COMMAND:
        return COMMAND[name](arguments.draftmill, folder)
    program = arguments.mutated_states
    if name in OTHERS:
        return OTHERS[name](program, folder)
    if name in QUANTISED:
        return quantised_trap(program, folder, *QUANTISED[name])
    for table, check in ((WEIGHTS, weights_trap), (REFERENCE, reference_trap)):
        if name in table:
            make_config, *more = table[name]
            return check(Case(program, folder, make_config()), *more)
    make_config, mutation, kind = CONFIGURATION[name]
    return configuration_trap(Case(program, folder, make_config()), mutation, kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutated-states", required=True)
    parser.add_argument("--draftmill", required=True)
    parser.add_argument("traps", nargs="*", metavar="TRAP")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for name in arguments.traps or [*CONFIGURATION, *WEIGHTS, *QUANTISED, *REFERENCE, *OTHERS, *COMMAND]:
        with tempfile.TemporaryDirectory(prefix="draftmill-trap-") as folder:
            holds, figures = run_trap(name, arguments, Path(folder))
        good &= bool(holds)
        print(f"{name}: {figures}{'' if holds else '  FAILED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
