#!/usr/bin/env python3
"""The engine on a GPU: tiny random checkpoints of every family that it runs, every x_k against transformers in float32.

    state_parity_device.py --draftmill build/draftmill [MODEL...]

For each model that is not refused by name: the error against transformers' float32 run is at most 1.1 times that of
transformers' own bfloat16 run on the CPU, median and 99th percentile, packed in one batch and one sample a batch; a second run
gives the same bits. Exit: 0 all hold, 1 otherwise, 77
without a GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import state_parity_tiny
import states_oracle
import tiny_models

# Dims of heads that the engine's two ways of attention take, and windows that bind within a row.
WIDE = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
MODELS = {
    **tiny_models.MODELS,
    "llama_head_dim_128": lambda: tiny_models.llama(**WIDE, head_dim=128),
    "mistral_window_128": lambda: tiny_models.mistral(**WIDE, head_dim=128, sliding_window=100),
    "qwen3_head_dim_128": lambda: tiny_models.qwen3(**WIDE, head_dim=128),
    "gemma3_head_dim_256": lambda: tiny_models.gemma3(**WIDE, head_dim=256, sliding_window=64, query_pre_attn_scalar=256),
    "gemma2_head_dim_256": lambda: tiny_models.gemma2(**WIDE, head_dim=256, sliding_window=64, query_pre_attn_scalar=256),
    "gpt_oss_head_dim_64": lambda: tiny_models.gpt_oss(**WIDE, head_dim=64, sliding_window=128, num_local_experts=32),
    "qwen3_moe_many_experts": lambda: tiny_models.qwen3_moe(**WIDE, head_dim=64, num_experts=128, num_experts_per_tok=8),
    "deepseek_v3_heads_192_128": lambda: tiny_models.deepseek_v3(hidden_size=256, qk_nope_head_dim=128, qk_rope_head_dim=64,
                                                                 v_head_dim=128, kv_lora_rank=64),
    "llama_head_dim_512": lambda: tiny_models.llama(num_attention_heads=2, num_key_value_heads=1, head_dim=512),
}
REFUSED = {"llama_head_dim_512"}
REFUSAL = "the engine for GPUs does not run models with"


def rows(vocabulary, times):
    generator = torch.Generator().manual_seed(9)
    lengths = times * [1, 2, 3, 17, 40, 128, 129, 300, 1500, 1, 64, 5, 7, 9, 11, 13, 15, 21, 700]
    return [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def run(program, folder, input_path, output, *arguments):
    command = [program, "states", "--device", "cuda", "--dtype", "bfloat16", "--model", folder, "--input", input_path, "--output", output, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return load_file(output)["hidden_states"]


def check_model(program, name, config, folder):
    failures = []
    tiny_models.make_checkpoint(folder, config)
    layers = list(range(config.num_hidden_layers + 1))
    has_router = any(hasattr(config, field) for field in ("num_local_experts", "num_experts", "n_routed_experts"))
    samples = rows(config.vocab_size, state_parity_tiny.ROWS_WITH_A_ROUTER if has_router else 1)
    input_path = folder / "rows.jsonl"
    input_path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
    exact = torch.cat(states_oracle.reference_states(folder, samples, layers, torch.float32))
    theirs = states_oracle.relative_errors(torch.cat(states_oracle.reference_states(folder, samples, layers, torch.bfloat16)), exact)
    every = ["--layers", ",".join(map(str, layers)), "--batch-tokens", 4096]
    packed = run(program, folder, input_path, folder / "packed.safetensors", *every)
    single = run(program, folder, input_path, folder / "single.safetensors", *every[:2], "--batch-tokens", 1)
    for slot, layer in enumerate(layers):
        for what, states in (("packed", packed), ("single", single)):
            errors = states_oracle.relative_errors(states, exact)[:, slot]
            for quantile in (0.5, 0.99):
                bound = 1.1 * theirs[:, slot].quantile(quantile).item() + 1e-9
                value = errors.quantile(quantile).item()
                if value > bound:
                    failures.append(f"{what} x_{layer} quantile {quantile}: {value:.3e} > {bound:.3e}")
    again = run(program, folder, input_path, folder / "again.safetensors", *every)
    if not torch.equal(again.view(torch.int16), packed.view(torch.int16)):
        failures.append("a second run gives other bits")
    ours = states_oracle.relative_errors(packed, exact)
    median, far = (" / ".join(f"{errors[:, -1].quantile(quantile):.4f}" for errors in (ours, theirs)) for quantile in (0.5, 0.99))
    print(f"{name}: x_{layers[-1]}, draftmill / transformers: median {median}, 99th percentile {far}"
          + "".join("\n  FAILED " + failure for failure in failures), flush=True)
    return not failures


def check_refusal(program, name, config, folder):
    tiny_models.make_checkpoint(folder, config)
    (folder / "rows.jsonl").write_text('{"input_ids": [1, 2, 3]}\n')
    try:
        run(program, folder, folder / "rows.jsonl", folder / "states.safetensors", "--layers", "1")
    except RuntimeError as error:
        print(f"{name}: {error}", flush=True)
        return REFUSAL in str(error)
    print(f"{name}: FAILED: it is not refused", flush=True)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draftmill", required=True)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all without any")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine")
        return 77
    good = True
    for name in arguments.models or MODELS:
        check = check_refusal if name in REFUSED else check_model
        with tempfile.TemporaryDirectory(prefix="draftmill-parity-") as folder:
            try:
                good &= check(arguments.draftmill, name, MODELS[name](), Path(folder))
            except RuntimeError as error:
                print(f"{name}: FAILED {error}", flush=True)
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
