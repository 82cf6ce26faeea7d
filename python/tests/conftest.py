"""A work folder of two chunks with three shards, written here byte by byte as docs/formats.md says."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

LAYERS = [2, 3, 4, 7]
HIDDEN_SIZE = 8
DTYPES = {"<u2": "BF16", "<f4": "F32", "<i4": "I32", "<i8": "I64", "<u8": "U64", "|u1": "U8"}


def write_safetensors(path: Path, tensors: dict[str, npt.NDArray[Any]], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, value in tensors.items():
        header[name] = {
            "dtype": DTYPES[value.dtype.str],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in tensors.values()))


@dataclass
class Truth:
    """What was written, by key."""

    ids: dict[tuple[int, int], npt.NDArray[np.int32]] = field(default_factory=dict)
    mask: dict[tuple[int, int], npt.NDArray[np.uint8]] = field(default_factory=dict)
    states: dict[tuple[int, int], npt.NDArray[np.uint16]] = field(default_factory=dict)
    content_hash: dict[tuple[int, int], npt.NDArray[np.uint8]] = field(default_factory=dict)
    weight: npt.NDArray[np.float32] = field(default_factory=lambda: np.ones(HIDDEN_SIZE, dtype=np.float32))

    @property
    def keys(self) -> list[tuple[int, int]]:
        return sorted(self.ids)


def shard_metadata(chunk: int, shard: int, **changes: str) -> dict[str, str]:
    metadata = {
        "format": "draftmill.shard",
        "format_version": "1",
        "chunk": str(chunk),
        "shard": str(shard),
        "extract_fingerprint": "e1",
        "layers": json.dumps(LAYERS),
        "layer_index": "hf",
        "num_layers": "7",
        "final_norm": "pre",
        "shift": "none",
        "dtype": "bfloat16",
        "codec": "none",
    }
    return {**metadata, **changes}


def write_shard(
    work: Path, chunk: int, shard: int, samples: list[tuple[int, int, int]], truth: Truth, **changes: str
) -> dict[str, Any]:
    """`samples` are (sample_id, variant, tokens); the last one of a shard is quarantined where its tokens are negative."""
    generator = np.random.default_rng(chunk * 10 + shard)
    columns: dict[str, list[Any]] = {name: [] for name in ("ids", "mask", "states", "hash", "checksum", "state")}
    for sample_id, variant, tokens in samples:
        count = abs(tokens)
        values = generator.standard_normal((count, len(LAYERS), HIDDEN_SIZE)).astype(np.float32)
        states = (values.view(np.uint32) >> 16).astype(np.uint16)
        ids = generator.integers(0, 50, count).astype(np.int32)
        mask = (np.arange(count) > 1).astype(np.uint8)
        content_hash = np.frombuffer(xxhash.xxh3_128(str(sample_id).encode()).digest()[::-1], dtype=np.uint8)
        digest = xxhash.xxh3_64(ids.tobytes() + mask.tobytes() + states.tobytes()).intdigest()
        for name, value in zip(columns, (ids, mask, states, content_hash, digest, int(tokens < 0)), strict=True):
            columns[name].append(value)
        if tokens > 0:
            key = (sample_id, variant)
            truth.ids[key], truth.mask[key], truth.states[key] = ids, mask, states
            truth.content_hash[key] = content_hash
    path = f"shards/{chunk:06}/c{chunk:06}-s{shard:03}.safetensors"
    bounds = np.cumsum([0, *(len(ids) for ids in columns["ids"])])
    tensors = {
        "hidden_states": np.concatenate(columns["states"]),
        "cu_seqlens": bounds.astype(np.int64),
        "sample_id": np.array([sample[0] for sample in samples], dtype=np.int64),
        "checksum": np.array(columns["checksum"], dtype=np.uint64),
        "input_ids": np.concatenate(columns["ids"]),
        "variant": np.array([sample[1] for sample in samples], dtype=np.int32),
        "loss_mask": np.concatenate(columns["mask"]),
        "content_hash": np.stack(columns["hash"]),
        "sample_state": np.array(columns["state"], dtype=np.uint8),
    }
    write_safetensors(work / path, tensors, shard_metadata(chunk, shard, **changes))
    return {"path": path, "samples": len(samples), "quarantined": sum(columns["state"])}


def write_manifest(work: Path, shards: list[dict[str, Any]], **changes: Any) -> None:
    manifest = {
        "format": "draftmill.manifest",
        "format_version": 1,
        "facts": {
            "model": {"num_layers": 7, "hidden_size": HIDDEN_SIZE, "vocab_rows": 50, "fingerprint": "m1"},
            "layers": LAYERS,
            "final_norm": "pre",
            "fingerprints": {"extract": "e1"},
        },
        "shards": shards,
    }
    (work / "manifest.json").write_text(json.dumps({**manifest, **changes}), encoding="utf-8")


@pytest.fixture
def truth() -> Truth:
    return Truth()


@pytest.fixture
def work(tmp_path: Path, truth: Truth) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    shards = [
        write_shard(folder, 0, 0, [(3, 0, 9), (0, 0, 5), (1, 1, 7)], truth),
        write_shard(folder, 0, 1, [(1, 0, 4), (2, 0, -6)], truth),
        write_shard(folder, 1, 0, [(5, 0, 3), (4, 0, 8)], truth),
    ]
    write_manifest(folder, shards)
    truth.weight = np.linspace(0.5, 2.0, HIDDEN_SIZE, dtype=np.float32)
    norm = {"epsilon": "1e-05", "kind": "w", "rounding": "hf", "model_fingerprint": "m1"}
    write_safetensors(
        folder / "final_norm.safetensors",
        {"weight": truth.weight},
        {"format": "draftmill.final_norm", "format_version": "1", **norm},
    )
    return folder
