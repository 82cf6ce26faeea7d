#!/usr/bin/env python3
"""Real conversations through a real model: draftmill's states against transformers.

    state_parity.py --draftmill build/draftmill --model models/smollm2-135m-instruct

For each captured layer, the per-token relative L2 error against transformers in float32, median and 99th percentile,
must be at most 1.1 times that of transformers' own bfloat16 run on single sequences.
Exit: 0 holds, 1 not, 77 skipped (no model or no test data).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import real_conversations
import states_oracle


def print_table(ours, theirs, layers):
    """Errors by layer; returns the largest ratio of ours to theirs."""
    largest = 0.0
    print(f"{len(ours)} tokens; relative L2 error against transformers float32")
    print("layer   draftmill median      p99   transformers bf16 median      p99   ratio median   p99")
    for slot, layer in enumerate(layers):
        figures = [errors[:, slot].quantile(q).item() for errors in (ours, theirs) for q in (0.5, 0.99)]
        ratios = figures[0] / figures[2], figures[1] / figures[3]
        largest = max(largest, *ratios)
        print(f"x_{layer:<5} {figures[0]:16.5f} {figures[1]:8.5f} {figures[2]:26.5f} {figures[3]:8.5f} {ratios[0]:14.3f} {ratios[1]:5.3f}")
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draftmill", required=True)
    parser.add_argument("--model", default="models/smollm2-135m-instruct")
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if not Path(arguments.model, "config.json").exists() or not (real_conversations.TEST_DATA / "conversations").exists():
        print(f"skipped: {arguments.model} or {real_conversations.TEST_DATA} is absent")
        return 77
    samples = real_conversations.token_rows(arguments.model, arguments.conversations)
    depth = json.loads(Path(arguments.model, "config.json").read_text())["num_hidden_layers"]
    layers = [2, depth // 2, depth - 3, depth]
    with tempfile.TemporaryDirectory(prefix="draftmill-parity-") as folder:
        input_path = Path(folder, "rows.jsonl")
        input_path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
        output = Path(folder, "states.safetensors")
        report = subprocess.run([arguments.draftmill, "states", "--model", arguments.model, "--input", input_path, "--output", output,
                                 "--threads", str(arguments.threads)], check=True, stdout=subprocess.PIPE, text=True).stdout
        print(report.strip())
        states = load_file(output)["hidden_states"]
    exact = torch.cat(states_oracle.reference_states(arguments.model, samples, layers, torch.float32))
    theirs = states_oracle.relative_errors(torch.cat(states_oracle.reference_states(arguments.model, samples, layers, torch.bfloat16)), exact)
    ours = states_oracle.relative_errors(states, exact)
    print(f"{len(samples)} conversations")
    good = print_table(ours, theirs, layers) <= 1.1
    print("holds" if good else "FAILED: an error is more than 1.1 times transformers' own")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
