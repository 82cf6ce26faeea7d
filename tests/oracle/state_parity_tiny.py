#!/usr/bin/env python3
"""Tiny random checkpoints, made by transformers: every x_k of draftmill against transformers.

    state_parity_tiny.py --compute-states build/stages/extract/compute_states

For each model: in float32, all x_k within 1e-5 relative of transformers' float32 run; in bfloat16, the error against
that float32 run at most 1.1 times the error of transformers' own bfloat16 run; packed rows against single rows within
the same bound; threads 1, 2 and 4 and small blocks bit for bit alike. Exit: 0 all hold, 1 otherwise.
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

ROPE_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32, "rope_theta": 10000.0}
BASE = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=199, max_position_embeddings=1024, tie_word_embeddings=True)


def models():
    """Name, configuration and what is special about it."""
    from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
    yield "llama", LlamaConfig(**BASE)
    yield "llama_no_grouping", LlamaConfig(**{**BASE, "num_key_value_heads": 4, "tie_word_embeddings": False})
    yield "llama_one_kv_head_wide", LlamaConfig(**{**BASE, "num_key_value_heads": 1, "head_dim": 24})
    yield "llama_biases", LlamaConfig(**BASE, attention_bias=True, mlp_bias=True)
    yield "llama_rope_llama3", LlamaConfig(**BASE, rope_parameters=ROPE_LLAMA3)
    yield "llama_rope_linear", LlamaConfig(**BASE, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})
    yield "mistral_window", MistralConfig(**BASE, head_dim=32, sliding_window=17)
    yield "qwen2", Qwen2Config(**BASE)
    yield "qwen3", Qwen3Config(**BASE, head_dim=32)


def make_checkpoint(folder, config):
    from transformers import AutoModelForCausalLM
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if "norm" in name or name.endswith("bias") else 0.12
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name else 0.0))
    # Weights that bfloat16 holds exactly: both precisions then run the same model.
    model.to(torch.bfloat16).to(torch.float32).save_pretrained(folder)
    return model.to(torch.bfloat16).to(torch.float32)


def rows(vocabulary):
    generator = torch.Generator().manual_seed(9)
    lengths = [1, 2, 3, 17, 40, 128, 129, 300, 700, 1, 64]
    return [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def run(program, folder, input_path, output, *arguments):
    subprocess.run([program, "--model", folder, "--input", input_path, "--output", output, *map(str, arguments)], check=True,
                   stdout=subprocess.DEVNULL)
    return load_file(output)


def check_model(program, name, config, folder):
    failures = []
    make_checkpoint(folder, config)
    layers = list(range(config.num_hidden_layers + 1))
    samples = rows(config.vocab_size)
    input_path = folder / "rows.jsonl"
    input_path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
    exact = states_oracle.reference_states(folder, samples, layers, torch.float32)
    own_bf16 = states_oracle.reference_states(folder, samples, layers, torch.bfloat16)
    every = ["--layers", ",".join(map(str, layers))]
    got32 = run(program, folder, input_path, folder / "f32.safetensors", *every, "--dtype", "float32")["hidden_states"]
    worst = states_oracle.relative_errors(got32, torch.cat(exact)).max().item()
    if worst > 1e-5:
        failures.append(f"float32: largest relative error {worst:.2e}")
    packed = run(program, folder, input_path, folder / "bf16.safetensors", *every, "--dtype", "bfloat16")["hidden_states"]
    single = run(program, folder, input_path, folder / "single.safetensors", *every, "--dtype", "bfloat16", "--batch-tokens", 1)["hidden_states"]
    ours = states_oracle.relative_errors(packed, torch.cat(exact))
    theirs = states_oracle.relative_errors(torch.cat(own_bf16), torch.cat(exact))
    alone = states_oracle.relative_errors(single, torch.cat(exact))
    for slot, layer in enumerate(layers):
        for what, errors in (("packed", ours), ("single", alone)):
            for quantile in (0.5, 0.99):
                bound = 1.1 * theirs[:, slot].quantile(quantile).item() + 1e-9
                value = errors[:, slot].quantile(quantile).item()
                if value > bound:
                    failures.append(f"bfloat16 {what} x_{layer} quantile {quantile}: {value:.3e} > {bound:.3e}")
    bits = packed.view(torch.int16)
    for threads in (2, 4):
        other = run(program, folder, input_path, folder / "threads.safetensors", *every, "--dtype", "bfloat16", "--threads", threads)
        if not torch.equal(other["hidden_states"].view(torch.int16), bits):
            failures.append(f"{threads} threads give other bits")
    print(f"{name}: float32 {worst:.1e}, bfloat16 median {ours.median():.2e} (transformers {theirs.median():.2e})"
          + "".join("\n  FAILED " + failure for failure in failures), flush=True)
    return not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compute-states", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for name, config in models():
        with tempfile.TemporaryDirectory(prefix="draftmill-parity-") as folder:
            good &= check_model(arguments.compute_states, name, config, Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
