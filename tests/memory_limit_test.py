"""What limits.memory promises of the whole program: weights larger than it are streamed, and a long sequence fits."""

import json
import os
import random
import struct
import subprocess
from pathlib import Path

import numpy as np

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
MIB = 2**20
LONG = 32768
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 260,
    "rms_norm_eps": 1e-5, "max_position_embeddings": LONG, "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "eos_token_id": 257,
}
PIPELINE = """\
work: work
model: {path: model}
ingest: {sources: [{path: rows.jsonl}]}
vocab_map: {size: 260}
extract: {weights: auto, batch_tokens: 1024, block_tokens: 4096}
limits: {threads: 2, min_free_disk: 0, memory: 512MiB}
"""


def tensors(config):
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    narrow = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (hidden,)
        for name, rows, columns in (("self_attn.q", hidden, hidden), ("self_attn.k", narrow, hidden), ("self_attn.v", narrow, hidden),
                                    ("self_attn.o", hidden, hidden), ("mlp.gate", wide, hidden), ("mlp.up", wide, hidden),
                                    ("mlp.down", hidden, wide)):
            yield f"{prefix}{name}_proj.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)


def write_model(folder, values=None, **shape):
    """Returns the bytes of the weights. Without `values` the file is a hole behind its header: it takes no disk."""
    config = {**CONFIG, **shape}
    header, end = {}, 0
    for name, extents in tensors(config):
        begin, end = end, end + 2 * int(np.prod(extents))
        header[name] = {"dtype": "BF16", "shape": list(extents), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    if path.exists():
        path.unlink()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if values is None:
            file.truncate(8 + len(text) + end)
        else:
            file.write(values(end // 2).tobytes())
    return end


def run(folder, *command):
    """Runs the program and returns its largest resident set in bytes."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([BINARY, *map(str, command)], stdout=log, stderr=log, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "log").read_text()
    return usage.ru_maxrss * 1024


def states(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    info = json.loads(data[8 : 8 + length])["hidden_states"]
    return np.frombuffer(data[8 + length :][slice(*info["data_offsets"])], np.float32).reshape(info["shape"])


def test_a_run_with_streamed_weights_stays_under_its_limit(tmp_path):
    """`auto` streams weights of twice the limit."""
    model = make_byte_model(tmp_path / "model")
    weight_bytes = write_model(model, hidden_size=1024, intermediate_size=4096, num_hidden_layers=40)
    assert weight_bytes > 2 * 512 * MIB
    generator = random.Random(3)
    rows = [[{"role": role, "content": " ".join(str(generator.random()) for _ in range(12))} for role in ("user", "assistant")]
            for _ in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    peak = run(tmp_path, "run", "pipeline.yaml")
    assert peak < 512 * MIB, f"{peak / MIB:.0f} MiB"


def small_values(count):
    """bfloat16 numbers of both signs, about 2^-4."""
    bits = np.random.default_rng(1).integers(0, 2**16, count, dtype=np.uint16)
    return (bits & 0x807F) | 0x3D80


def test_a_sequence_of_32768_tokens_fits(tmp_path):
    """No [T, T] matrix: one head's scores alone would take 4 GiB. The beginning is that of the short sequence."""
    write_model(tmp_path, small_values, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2)
    ids = [random.Random(5).randrange(256) for _ in range(LONG)]
    peaks = []
    for name, length in (("long", LONG), ("short", 700)):
        (tmp_path / "rows.jsonl").write_text(json.dumps({"input_ids": ids[:length]}) + "\n")
        peaks.append(run(tmp_path, "states", "--model", tmp_path, "--input", "rows.jsonl", "--output", f"{name}.safetensors", "--layers", "0,2",
                         "--dtype", "float32", "--memory", "512MiB"))
    long, short = states(tmp_path / "long.safetensors"), states(tmp_path / "short.safetensors")
    assert long.shape == (LONG, 2, 128)
    assert np.isfinite(long).all()
    np.testing.assert_allclose(long[:700], short, rtol=0, atol=1e-4 * np.abs(short).max())
    assert peaks[0] < 512 * MIB, f"{peaks[0] / MIB:.0f} MiB"
