"""tests/check_demo.py can fail: a small work folder made by hand passes, and each way of damaging it is noticed."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from check_demo import CheckFailed, check
from work_folder import WorkFolder, hash64, hash128

ROOT = Path(__file__).resolve().parent.parent
CONFIG = {"hidden_size": 8, "num_hidden_layers": 7, "vocab_size": 50}
LAYERS = [2, 3, 4, 7]
LENGTHS = [3, 4, 5]
LEAST = {"chunks": 1, "shards": 1, "batches": 2, "conversations": 3}


def shard_bytes(tensors, metadata):
    """hidden_states first and at a multiple of 4,096 bytes, as draftmill lays a shard out."""
    header, offset = {"__metadata__": metadata}, 0
    kinds = {"bfloat16": "BF16", "int64": "I64", "uint64": "U64", "int32": "I32", "uint8": "U8"}
    for name, value in tensors.items():
        size = value.numel() * value.element_size()
        dtype = kinds[str(value.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 4096)
    payload = b"".join(value.contiguous().view(torch.uint8).numpy().tobytes() for value in tensors.values())
    return len(text).to_bytes(8, "little") + text + payload


def make_work_folder(folder):
    generator = np.random.default_rng(7)
    for name in ("corpus", "vocab", "shards/000000", "ingested"):
        (folder / name).mkdir(parents=True)
    samples = []
    for number, length in enumerate(LENGTHS):
        ids = generator.integers(0, CONFIG["vocab_size"], length).astype(np.int32)
        mask = np.array([0] + [1] * (length - 1), dtype=np.uint8)
        samples.append((ids, mask, hash128(b"%d" % number), hash64(ids.tobytes(), mask.tobytes())))
    order = [0, 1, 2]
    bounds = np.cumsum([0, *LENGTHS])
    common = {
        "cu_seqlens": torch.tensor(bounds),
        "sample_id": torch.tensor(order),
        "token_hash": torch.from_numpy(np.array([sample[3] for sample in samples], dtype=np.uint64)),
        "input_ids": torch.from_numpy(np.concatenate([sample[0] for sample in samples])),
        "variant": torch.zeros(3, dtype=torch.int32),
        "loss_mask": torch.from_numpy(np.concatenate([sample[1] for sample in samples])),
        "content_hash": torch.tensor([list(sample[2]) for sample in samples], dtype=torch.uint8),
    }
    corpus = folder / "corpus" / "chunk-000000.safetensors"
    save_file(common, corpus)

    states = torch.randn(sum(LENGTHS), len(LAYERS), CONFIG["hidden_size"], generator=torch.Generator().manual_seed(7))
    states = states.to(torch.bfloat16)
    raw = states.view(torch.uint16).numpy()
    checksums = [
        hash64(ids.tobytes(), mask.tobytes(), raw[bounds[i] : bounds[i + 1]].tobytes())
        for i, (ids, mask, _, _) in enumerate(samples)
    ]
    tensors = {
        "hidden_states": states,
        "cu_seqlens": common["cu_seqlens"],
        "sample_id": common["sample_id"],
        "token_hash": common["token_hash"],
        "checksum": torch.from_numpy(np.array(checksums, dtype=np.uint64)),
        "batch_offsets": torch.tensor([0, 2, 3]),
        "input_ids": common["input_ids"],
        "variant": common["variant"],
        "loss_mask": common["loss_mask"],
        "content_hash": common["content_hash"],
        "sample_state": torch.zeros(3, dtype=torch.uint8),
    }
    shard = folder / "shards/000000/c000000-s000.safetensors"
    shard.write_bytes(shard_bytes(tensors, {"layers": json.dumps(LAYERS), "final_norm": "pre"}))

    supervised = np.concatenate([ids[mask == 1] for ids, mask, _, _ in samples])
    frequencies = np.bincount(supervised, minlength=CONFIG["vocab_size"]).astype(np.int64)
    chosen = np.sort(np.argsort(-frequencies, kind="stable")[:6])
    np.save(folder / "vocab/d2t.npy", chosen - np.arange(6))
    np.save(folder / "vocab/t2d.npy", np.isin(np.arange(CONFIG["vocab_size"]), chosen))
    np.save(folder / "vocab/token_freq.npy", frequencies)
    (folder / "vocab/report.json").write_text("{}")
    write_manifest(folder)
    write_state(folder, samples, corpus, shard)


def write_manifest(folder):
    manifest = {}
    for group in ("corpus", "vocab", "shards"):
        manifest[group] = [
            {
                "path": str(path.relative_to(folder)),
                "bytes": path.stat().st_size,
                "digest": hash128(path.read_bytes()).hex(),
            }
            for path in sorted((folder / group).rglob("*"))
            if path.is_file()
        ]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_state(folder, samples, corpus, shard):
    database = sqlite3.connect(folder / "state.db")
    for path in sorted((ROOT / "state" / "schema").glob("*.sql")):
        database.executescript(path.read_text(encoding="utf-8"))
    database.execute("INSERT INTO stages (stage, position, state, version) VALUES ('write', 0, 'done', 1)")
    database.execute(
        "INSERT INTO chunks (chunk, epoch, first_sample, rows, bytes, ingested_digest, tokenized, samples, tokens,"
        " supervised_tokens, corpus_digest, corpus_bytes) VALUES (0, 0, 0, 3, 1, '', 1, 3, ?, ?, ?, ?)",
        (sum(LENGTHS), sum(LENGTHS) - 3, hash128(corpus.read_bytes()).hex(), corpus.stat().st_size),
    )
    for number, (ids, mask, content_hash, _) in enumerate(samples):
        batch = 0 if number < 2 else 1
        database.execute("INSERT INTO conversations VALUES (?, 0, 0, ?, 1, 0, ?)", (number, number, content_hash))
        database.execute(
            "INSERT INTO samples VALUES (?, 0, 0, ?, ?, ?, ?, 1, 0)", (number, batch, number, len(ids), int(mask.sum()))
        )
    for batch, count in ((0, 2), (1, 1)):
        database.execute(
            "INSERT INTO batches (chunk, batch, block, shard, samples, tokens, bytes, state) VALUES (0, ?, 0, 0, ?, 1, 1,"
            " 'written')",
            (batch, count),
        )
    database.execute(
        "INSERT INTO shards (chunk, shard, first_batch, batches, samples, tokens, state, file, bytes) VALUES (0, 0, 0, 2, 3,"
        " ?, 'published', ?, ?)",
        (sum(LENGTHS), str(shard.relative_to(folder)), shard.stat().st_size),
    )
    database.commit()
    database.close()


@pytest.fixture
def folder(tmp_path):
    make_work_folder(tmp_path / "work")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "work"


def run_check(folder):
    check(WorkFolder(folder), folder.parent, LEAST)


def test_a_whole_folder_passes(folder):
    run_check(folder)


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def change(folder, sql):
    database = sqlite3.connect(folder / "state.db")
    database.execute(sql)
    database.commit()
    database.close()


SHARD = "shards/000000/c000000-s000.safetensors"
CORPUS = "corpus/chunk-000000.safetensors"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: flip(folder / SHARD, 4096 + 17), "checksum"),
        (lambda folder: flip(folder / SHARD, -4), "content hash|sample|quarantined"),
        (lambda folder: flip(folder / CORPUS, -1), "digest|content hash|token hash"),
        (lambda folder: (folder / "vocab/report.json").unlink(), "report.json"),
        (lambda folder: flip(folder / "vocab/d2t.npy", -8), "d2t|digest"),
        (lambda folder: flip(folder / "vocab/token_freq.npy", -8), "token_freq"),
        (lambda folder: (folder / "corpus/surplus").write_text("x"), "files of the manifest"),
        (lambda folder: change(folder, "UPDATE chunks SET tokens = tokens + 1"), "tokens"),
        (lambda folder: change(folder, "UPDATE samples SET position = 9 - position"), "order of the samples"),
        (lambda folder: change(folder, "UPDATE batches SET state = 'planned' WHERE batch = 1"), "batches not written"),
        (lambda folder: change(folder, "UPDATE stages SET state = 'running'"), "not done"),
        (lambda folder: change(folder, "DELETE FROM conversations WHERE sample_id = 2"), "conversations"),
    ],
)
def test_damage_is_noticed(folder, damage, message):
    damage(folder)
    with pytest.raises((CheckFailed, OSError), match=message):
        run_check(folder)
