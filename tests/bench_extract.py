#!/usr/bin/env python3
"""Tokens a second of draftmill's extraction beside the usual ways with transformers, in one run on one machine.

    tests/bench_extract.py [--conversations 48] [--binary build/draftmill] [--json]

All take the same conversations of the demo and the demo model in bf16, keep the same four hidden states of every token,
and write them to disk:

    draftmill              a whole run into a fresh work folder: the time that table `batches` gives for computing, and
                           the time of the whole run with start, ingest, tokenization, checksums and publication
    one at a time          transformers, one sequence after the other, torch.save for each
    padded by 8            batches of 8 in the order of the data, padded on the right
    padded by 8, sorted    the same, sorted by length first
    the same in float32    where the processor has no bfloat16 products, transformers is faster in float32
    products               the product rates of this machine (2,048 cubed, at least 3 s), for scale

The usual ways are given their best: loading and tokenization are not counted, and every thread is theirs. Needs the test
set-up and a quiet machine. Exit: 0 measured, 1 failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kept_states import kept_states
from work_folder import WorkFolder

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "smollm2-135m-instruct"
DEMO = ROOT / "configs" / "demo"
BATCH = 8
PRODUCT_SIZE = 2048
PRODUCT_SECONDS = 3.0

PIPELINE = """\
work: work
model: {{path: {model}}}
ingest: {{sources: [{{path: {data}}}]}}
extract: {{batch_tokens: 2048, block_tokens: 8192}}
limits: {{min_free_disk: 0}}
"""


def conversations(count):
    rows = [json.loads(line)["messages"] for line in (DEMO / "chat.jsonl").read_text(encoding="utf-8").splitlines()]
    roles = {"system": "system", "human": "user", "gpt": "assistant"}
    for row in json.loads((DEMO / "sharegpt.json").read_text(encoding="utf-8")):
        if not row["id"].startswith("again-"):
            rows.append([{"role": roles[turn["from"]], "content": turn["value"]} for turn in row["conversations"]])
    step = max(1, len(rows) // count)
    return rows[::step][:count]


def measure_single(model, sequences, folder):
    started = time.perf_counter()
    for number, ids in enumerate(sequences):
        states = kept_states(model, torch.tensor([ids]))
        torch.save({"input_ids": torch.tensor(ids), "hidden_states": states[0]}, folder / f"{number}.pt")
    return time.perf_counter() - started


def measure_padded(model, sequences, folder, pad):
    started = time.perf_counter()
    for first in range(0, len(sequences), BATCH):
        batch = sequences[first : first + BATCH]
        longest = max(map(len, batch))
        ids = torch.full((len(batch), longest), pad)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for row, sequence in enumerate(batch):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
        states = kept_states(model, ids, mask)
        for row, sequence in enumerate(batch):
            kept = states[row, : len(sequence)].clone()
            torch.save({"input_ids": torch.tensor(sequence), "hidden_states": kept}, folder / f"{first + row}.pt")
    return time.perf_counter() - started


def measure_products(dtype):
    """GFLOP/s of square products, laid out as a linear layer's."""
    left = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(dtype)
    right = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(dtype)
    torch.nn.functional.linear(left, right)
    products, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < PRODUCT_SECONDS:
        torch.nn.functional.linear(left, right)
        products += 1
    return products * 2 * PRODUCT_SIZE**3 / elapsed / 1e9


def seconds_until_shard(run, started, shards):
    """From the start of the program until its first shard appears, which is when its first batch is computed."""
    while run.poll() is None:
        if any(shards.glob("*/*")):
            return time.perf_counter() - started
        time.sleep(0.001)
    return time.perf_counter() - started


def measure_draftmill(binary, rows, folder):
    """(tokens, seconds of extraction, seconds of the whole run, seconds before the first block is computed)"""
    data = folder / "chat.jsonl"
    data.write_text("".join(json.dumps({"messages": row}, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(PIPELINE.format(model=MODEL, data=data), encoding="utf-8")
    log = folder / "log"
    with open(log, "wb") as output:
        started = time.perf_counter()
        run = subprocess.Popen([binary, "run", pipeline], stdout=output, stderr=output)
        first_shard = seconds_until_shard(run, started, folder / "work" / "shards")
        run.wait()
        seconds = time.perf_counter() - started
    if run.returncode != 0:
        raise RuntimeError(f"draftmill run ended with {run.returncode}:\n{log.read_text()[-2000:]}")
    work = WorkFolder(folder / "work")
    tokens = work.value("SELECT sum(tokens) FROM chunks")
    extract_seconds = work.value("SELECT sum(seconds) FROM batches")
    return tokens, extract_seconds, seconds, first_shard - work.value("SELECT sum(seconds) FROM batches WHERE block = 0")


def measure_transformers(sequences, dtype, pad):
    """Seconds of the three usual ways, by name."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=dtype)
    kept_states(model, torch.tensor([sequences[0]]))  # warm
    with tempfile.TemporaryDirectory(prefix="draftmill-bench-") as name:
        folder = Path(name)
        return {
            "one at a time": measure_single(model, sequences, folder),
            "padded by 8": measure_padded(model, sequences, folder, pad),
            "padded by 8, sorted": measure_padded(model, sorted(sequences, key=len), folder, pad),
        }


def measure(binary, count):
    rows = conversations(count)
    with tempfile.TemporaryDirectory(prefix="draftmill-bench-") as folder:
        tokens, extract_seconds, run_seconds, start_seconds = measure_draftmill(binary, rows, Path(folder))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    sequences = [tokenizer.apply_chat_template(row, return_dict=True)["input_ids"] for row in rows]
    if sum(map(len, sequences)) != tokens:
        raise RuntimeError(f"transformers makes {sum(map(len, sequences))} tokens of the conversations, draftmill {tokens}")
    rates = {"draftmill extract": tokens / extract_seconds, "draftmill, the whole run": tokens / run_seconds}
    result = {"conversations": len(rows), "tokens": tokens, "threads": torch.get_num_threads(), "start_seconds": start_seconds,
              "tokens_per_second": rates}
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "float32")):
        seconds = measure_transformers(sequences, dtype, tokenizer.pad_token_id)
        rates.update({f"transformers {name}, {way}": tokens / value for way, value in seconds.items()})
        result[f"{name}_products_gflops"] = measure_products(dtype)
        result[f"draftmill_over_best_{name}"] = rates["draftmill extract"] * min(seconds.values()) / tokens
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=48)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        result = measure(arguments.binary.resolve(), arguments.conversations)
    except (RuntimeError, OSError) as error:
        print(f"bench_extract: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{result['conversations']} conversations, {result['tokens']} tokens, {result['threads']} threads; products: "
          f"bf16 {result['bf16_products_gflops']:.0f}, float32 {result['float32_products_gflops']:.0f} GFLOP/s; "
          f"draftmill begins its first block {result['start_seconds']:.2f} s after its start")
    for name, rate in result["tokens_per_second"].items():
        print(f"  {name:41s} {rate:8.0f} tokens/s")
    for name in ("bf16", "float32"):
        print(f"  draftmill extract is {result[f'draftmill_over_best_{name}']:.2f} times the best of transformers' {name} settings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
