#!/usr/bin/env python3
"""The engine on a GPU beside the usual script with transformers, in one run on one machine.

    draftmill bench checkpoint CONFIG.json models/random
    tests/bench_device.py models/random [--binary build/draftmill] [--samples 96] [--work DIR]

    draftmill              `draftmill bench extract`: products before and after, states to nowhere, states to shards
    padded by 8            transformers in bfloat16 (sdpa), batches of 8 in the order of the data, torch.save for each sample
    padded by 8, sorted    the same, sorted by length first

All keep the same four states of every token, of the same mix of lengths. Loading is not counted. Exit: 0 measured, 1 failed.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from kept_states import kept_states

ROOT = Path(__file__).resolve().parent.parent
BATCH = 8
MEAN_TOKENS = 1856
MAX_TOKENS = 4096


def lengths(count):
    """The mix that `draftmill bench extract` draws."""
    generator = random.Random(3)
    drawn = (math.exp(generator.normalvariate(math.log(MEAN_TOKENS) - 0.125, 0.75)) for _ in range(count))
    return [min(max(int(length), 16), MAX_TOKENS) for length in drawn]


def run_batches(model, samples, folder):
    for begin in range(0, len(samples), BATCH):
        batch = samples[begin:begin + BATCH]
        longest = max(len(ids) for ids in batch)
        padded = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros_like(padded)
        for row, ids in enumerate(batch):
            padded[row, :len(ids)] = ids
            mask[row, :len(ids)] = 1
        states = kept_states(model, padded.cuda(), mask.cuda())
        for row, ids in enumerate(batch):
            torch.save({"input_ids": ids, "hidden_states": states[row, :len(ids)].cpu()}, folder / f"{begin + row}.pt")


def timed(model, samples, parent):
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        torch.cuda.synchronize()
        begin = time.monotonic()
        run_batches(model, samples, Path(folder))
        torch.cuda.synchronize()
        return sum(len(ids) for ids in samples) / (time.monotonic() - begin)


def usual_ways(folder, count, parent):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").cuda().eval()
    generator = torch.Generator().manual_seed(5)
    samples = [torch.randint(0, model.config.vocab_size, (length,), generator=generator) for length in lengths(count)]
    timed(model, samples[:BATCH], parent)
    rates = {"padded by 8": timed(model, samples, parent)}
    rates["padded by 8, sorted"] = timed(model, sorted(samples, key=len), parent)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--binary", default=str(ROOT / "build" / "draftmill"))
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--disk-seconds", type=float, default=0, help="of the measurement with shards, where it is to be another")
    parser.add_argument("--product-seconds", type=float, default=20)
    parser.add_argument("--work", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    command = [arguments.binary, "bench", "extract", arguments.model, "--device", "cuda", "--json", "--threads", "8",
               "--seconds", str(arguments.seconds), "--product-seconds", str(arguments.product_seconds), "--disk-seconds", str(arguments.disk_seconds),
               "--work", str(Path(arguments.work) / "bench-shards")]
    facts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(json.dumps(facts))
    rates = usual_ways(arguments.model, arguments.samples, arguments.work)
    for name, key in (("draftmill, to nowhere", "to_nowhere"), ("draftmill, to shards", "to_disk")):
        rate = facts[key]
        print(f"{name:24} {rate['tokens_per_second']:10.0f} tok/s  {rate['share_of_products']:.3f} of products, "
              f"{rate['state_bytes_per_second'] / 1e9:.2f} GB/s, {rate['processor_cores_busy']:.1f} cores busy")
    print(f"{'the disk alone':24} {'':10}        {facts['disk_bytes_per_second'] / 1e9:.2f} GB/s")
    shards = facts["to_disk"]["tokens_per_second"]
    for name, rate in rates.items():
        print(f"{name:24} {rate:10.0f} tok/s  draftmill, to shards, is {shards / rate:.2f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
