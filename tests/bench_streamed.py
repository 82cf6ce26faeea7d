#!/usr/bin/env python3
"""A checkpoint larger than the memory it may use: streamed from a cold disk beside resident, in one run on one machine.

    tests/bench_streamed.py [--layers 28] [--tokens 16384] [--memory 1792MiB] [--limit 2GiB] [--binary build/draftmill]

Writes random weights of the shape of Llama-3.2-3B (28 layers: 5.8 GB) to a temporary folder, drops them from the page cache
and computes one block with `extract.weights` streamed, with resident, and compares: the bytes of the states, the time, and
the largest resident set of the streamed process, the program itself included. Exit: 0 the bytes agree, streamed takes at
most 1.1 times as long and stays under the limit; 1 otherwise.
"""

import argparse
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 3072, 8192, 24, 8, 128, 32000
SEQUENCE = 2048
UNITS = {"MiB": 2**20, "GiB": 2**30}


def byte_count(text):
    return int(float(text[:-3]) * UNITS[text[-3:]])


def tensors(layers):
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,)
        for name, rows, columns in (("q", HEADS * HEAD_DIM, HIDDEN), ("k", KV_HEADS * HEAD_DIM, HIDDEN), ("v", KV_HEADS * HEAD_DIM, HIDDEN),
                                    ("o", HIDDEN, HEADS * HEAD_DIM)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, columns)
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows, columns in (("gate", INTERMEDIATE, HIDDEN), ("up", INTERMEDIATE, HIDDEN), ("down", HIDDEN, INTERMEDIATE)):
            yield f"{prefix}mlp.{name}_proj.weight", (rows, columns)
    yield "model.norm.weight", (HIDDEN,)


def write_model(folder, layers):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
              "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
              "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY, "max_position_embeddings": 131072, "rope_theta": 500000.0,
              "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in tensors(layers):
        begin, end = end, end + 2 * (shape[0] if len(shape) == 1 else shape[0] * shape[1])
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    # Small numbers of both signs: sign and mantissa are noise, the exponent says 2^-7.
    noise = bytearray(random.Random(1).randbytes(2**24 + 2))
    noise[1::2] = bytes((byte & 0x80) | 0x3C for byte in noise[1::2])
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for first in range(0, end, 2**24):
            file.write(noise[: min(2**24, end - first)])
        file.flush()
        os.fsync(file.fileno())
    return end


def drop_from_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(binary, folder, weights, *more):
    """(seconds, largest resident set in bytes, digest of the states' file)"""
    output = folder / "states.safetensors"
    drop_from_cache(folder / "model.safetensors")
    command = [binary, "states", "--model", folder, "--input", folder / "rows.jsonl", "--output", output, "--weights", weights,
               "--layers", "2,5", *more]
    started = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"bench_streamed: {weights} ended with status {status}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024, hashlib.sha256(output.read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=16384, help="of the one block")
    parser.add_argument("--memory", default="1792MiB", help="what weights, activations and states may take")
    parser.add_argument("--limit", default="2GiB", help="what the whole process may take")
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="draftmill-streamed-") as scratch:
        folder = Path(scratch)
        weight_bytes = write_model(folder, arguments.layers)
        generator = random.Random(2)
        rows = [[generator.randrange(VOCABULARY) for _ in range(SEQUENCE)] for _ in range(arguments.tokens // SEQUENCE)]
        (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
        sizes = ("--batch-tokens", 2 * SEQUENCE, "--block-tokens", arguments.tokens)
        streamed, peak, streamed_digest = run(arguments.binary, folder, "streamed", "--memory", arguments.memory, *sizes)
        resident, resident_peak, resident_digest = run(arguments.binary, folder, "resident", *sizes)
    print(f"weights {weight_bytes / 1e9:.2f} GB, one block of {arguments.tokens} tokens, from a cold disk")
    print(f"resident: {resident:7.1f} s, largest resident set {resident_peak / 2**20:6.0f} MiB")
    print(f"streamed: {streamed:7.1f} s, largest resident set {peak / 2**20:6.0f} MiB, {streamed / resident:.3f} of resident")
    good = streamed_digest == resident_digest and peak < byte_count(arguments.limit) and streamed <= 1.1 * resident
    print("the same bytes" if streamed_digest == resident_digest else "OTHER BYTES")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
