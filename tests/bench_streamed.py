#!/usr/bin/env python3
"""A checkpoint larger than the memory it may use: streamed from a cold disk beside resident, in one run on one machine.

    tests/bench_streamed.py [--layers 28] [--tokens 16384] [--limit 2GiB] [--scratch FOLDER] [--binary build/draftmill]

Writes random weights of the shape of Llama-3.2-3B (28 layers: 5.8 GB) to a temporary folder. Two whole runs, each with one
block and with the weights dropped from the page cache before: `extract.weights: streamed` under `limits.memory`, and
resident without that limit. Compared are the bytes of every shard, the time, and the largest resident set of the streamed
run, the program itself included. Exit: 0 the bytes agree, streamed takes at most 1.1 times as long and stays under the
limit; 1 otherwise.
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

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 3072, 8192, 24, 8, 128, 32000
SEQUENCE = 2048
UNITS = {"MiB": 2**20, "GiB": 2**30}
LETTERS = "abcdefghijklmnopqrstuvwxyz      "
PIPELINE = """\
work: {weights}
model: {{path: model}}
ingest: {{sources: [{{path: rows.jsonl}}]}}
tokenize: {{max_length: {sequence}, too_long: truncate}}
vocab_map: {{size: 256}}
extract: {{weights: {weights}, layers: [2, {last}], batch_tokens: {batch}, block_tokens: {tokens}}}
limits: {{min_free_disk: 0, memory: {memory}}}
"""


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
              "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": 257}
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in tensors(layers):
        begin, end = end, end + 2 * (shape[0] if len(shape) == 1 else shape[0] * shape[1])
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    # Small numbers of both signs: sign and mantissa are noise, the exponent says 2^-7.
    noise = bytearray(random.Random(1).randbytes(2**24 + 2))
    noise[1::2] = bytes((byte & 0x80) | 0x3C for byte in noise[1::2])
    (folder / "model.safetensors").unlink(missing_ok=True)
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


def write_rows(path, tokens):
    """Conversations of one token a byte, each cut at SEQUENCE."""
    generator = random.Random(2)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(tokens // SEQUENCE):
            contents = ("".join(generator.choices(LETTERS, k=SEQUENCE // 2)) for _ in range(2))
            messages = [{"role": role, "content": content} for role, content in zip(("user", "assistant"), contents, strict=True)]
            file.write(json.dumps({"messages": messages}) + "\n")


def run(binary, folder, weights, memory, layers, tokens):
    """(seconds, largest resident set in bytes, digest of all shards)"""
    pipeline = folder / f"{weights}.yaml"
    pipeline.write_text(PIPELINE.format(weights=weights, memory=memory, last=layers, tokens=tokens, batch=2 * SEQUENCE, sequence=SEQUENCE))
    drop_from_cache(folder / "model" / "model.safetensors")
    started = time.perf_counter()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([binary, "run", pipeline], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status != 0:
        raise SystemExit(f"bench_streamed: {weights} ended with status {status}\n{(folder / 'log').read_text()[-2000:]}")
    digest = hashlib.sha256()
    for shard in sorted((folder / weights / "shards").glob("*/*.safetensors")):
        digest.update(shard.read_bytes())
    return seconds, usage.ru_maxrss * 1024, digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=16384, help="of the one block")
    parser.add_argument("--limit", default="2GiB", help="limits.memory of the streamed run, and what its process may take")
    parser.add_argument("--scratch", type=Path, help="where the checkpoint goes for the time; a real disk, else nothing is cold")
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="draftmill-streamed-", dir=arguments.scratch) as scratch:
        folder = Path(scratch)
        make_byte_model(folder / "model")
        weight_bytes = write_model(folder / "model", arguments.layers)
        write_rows(folder / "rows.jsonl", arguments.tokens)
        streamed, peak, streamed_digest = run(arguments.binary, folder, "streamed", arguments.limit, arguments.layers, arguments.tokens)
        resident, resident_peak, resident_digest = run(arguments.binary, folder, "resident", "16GiB", arguments.layers, arguments.tokens)
    print(f"weights {weight_bytes / 1e9:.2f} GB, one block of {arguments.tokens} tokens, from a cold disk")
    print(f"resident: {resident:7.1f} s, largest resident set {resident_peak / 2**20:6.0f} MiB")
    print(f"streamed: {streamed:7.1f} s, largest resident set {peak / 2**20:6.0f} MiB, {streamed / resident:.3f} of resident")
    good = streamed_digest == resident_digest and peak < byte_count(arguments.limit) and streamed <= 1.1 * resident
    print("the same bytes" if streamed_digest == resident_digest else "OTHER BYTES")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
