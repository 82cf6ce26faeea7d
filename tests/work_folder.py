"""Reads a finished work folder with Python's own libraries, for checks that share no code with draftmill."""

import json
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import xxhash
from safetensors import safe_open

CORPUS_TENSORS = {
    "cu_seqlens": "I64",
    "sample_id": "I64",
    "token_hash": "U64",
    "input_ids": "I32",
    "variant": "I32",
    "loss_mask": "U8",
    "content_hash": "U8",
}
SHARD_TENSORS = {
    **CORPUS_TENSORS,
    "hidden_states": "BF16",
    "checksum": "U64",
    "batch_offsets": "I64",
    "sample_state": "U8",
}


def hash128(*parts):
    """XXH3-128 in the order of bytes that draftmill stores."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.digest()[::-1]


def hash64(*parts):
    hasher = xxhash.xxh3_64()
    for part in parts:
        hasher.update(part)
    return hasher.intdigest()


def header_of(path):
    """(header as JSON, bytes before the tensors) of a safetensors file."""
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return json.loads(stream.read(length)), 8 + length


def tensors_of(path):
    """All tensors as numpy arrays, opened by the safetensors library; bfloat16 comes as its bits, uint16 [...]."""
    import torch  # numpy has no bfloat16

    with safe_open(path, framework="pt") as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118 - no dict, and not iterable
            value = file.get_tensor(name)
            tensors[name] = (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
        return tensors


class WorkFolder:
    """A work folder by its path: the state database read-only, and the published files."""

    def __init__(self, path):
        self.path = Path(path)
        self._database = sqlite3.connect(f"file:{self.path / 'state.db'}?mode=ro", uri=True)

    def query(self, sql, *values):
        return self._database.execute(sql, values).fetchall()

    def value(self, sql, *values):
        return self._database.execute(sql, values).fetchone()[0]

    def chunks(self):
        return [number for (number,) in self.query("SELECT chunk FROM chunks ORDER BY chunk")]

    def corpus_path(self, chunk):
        return self.path / "corpus" / f"chunk-{chunk:06d}.safetensors"

    def ingested_rows(self, chunk):
        """The canonical rows of a chunk, unpacked by the zstd program."""
        path = self.path / "ingested" / f"chunk-{chunk:06d}.jsonl.zst"
        text = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout
        return [json.loads(line) for line in text.splitlines()]

    def published_files(self):
        """Every file that a run publishes, relative to the folder: what must be the same bytes after a crash."""
        files = [self.path / "manifest.json"]
        for name in ("ingested", "corpus", "vocab", "shards"):
            files.extend(path for path in (self.path / name).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.path)) for path in files)


def samples_of(tensors):
    """Yields (index, begin, end) of each sample of a corpus or shard file."""
    bounds = tensors["cu_seqlens"]
    for index in range(len(bounds) - 1):
        yield index, int(bounds[index]), int(bounds[index + 1])


def token_hash(tensors, begin, end):
    return hash64(
        np.ascontiguousarray(tensors["input_ids"][begin:end], dtype="<i4").tobytes(),
        tensors["loss_mask"][begin:end].tobytes(),
    )
