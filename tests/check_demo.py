#!/usr/bin/env python3
"""Checks a finished work folder from outside: Python's safetensors opens every file, and shapes, dtypes, lengths, ids,
hashes and counts agree with the state database, with each other and with the model.

    tests/check_demo.py WORK [--least chunks=8,shards=20,batches=60,conversations=256]

Prints one line a check. Exit: 0 all hold, 1 one does not (it is named).
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from work_folder import CORPUS_TENSORS, SHARD_TENSORS, WorkFolder, hash64, hash128, header_of, samples_of, tensors_of, token_hash

DEMO_LEAST = "chunks=8,shards=20,batches=60,conversations=256"


class CheckFailed(Exception):
    """A check does not hold; the message says which and where."""


def require(condition, message):
    if not condition:
        raise CheckFailed(message)


def require_equal(actual, expected, what):
    require(actual == expected, f"{what}: {actual!r}, expected {expected!r}")


def check_state(work, least):
    unfinished = work.query("SELECT stage, state FROM stages WHERE state <> 'done'")
    require(not unfinished, f"stages that are not done: {unfinished}")
    require_equal(work.value("SELECT count(*) FROM failures"), 0, "failures")
    for table, smallest in least.items():
        count = work.value(f"SELECT count(*) FROM {table}")
        require(count >= smallest, f"{count} {table}, at least {smallest} are expected")
    require_equal(work.value("SELECT count(*) FROM shards WHERE state <> 'published'"), 0, "shards not published")
    require_equal(work.value("SELECT count(*) FROM batches WHERE state <> 'written'"), 0, "batches not written")
    rows = work.query("SELECT * FROM progress")
    require_equal(len(rows), work.value("SELECT count(*) FROM stages"), "rows of the view progress")


def check_header(path, tensors, dtypes):
    header, data_start = header_of(path)
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    require_equal({name: entry["dtype"] for name, entry in entries.items()}, dtypes, f"{path}: dtypes")
    for name, entry in entries.items():
        require_equal(list(tensors[name].shape), entry["shape"], f"{path}: shape of {name}")
    return header, data_start


def check_samples(path, tensors):
    """What holds for every file with samples: lists of one length, bounds, token hashes."""
    samples = len(tensors["sample_id"])
    bounds = tensors["cu_seqlens"]
    require_equal(len(bounds), samples + 1, f"{path}: length of cu_seqlens")
    require(bounds[0] == 0 and bounds[-1] == len(tensors["input_ids"]), f"{path}: cu_seqlens does not span the tokens")
    require(bool((np.diff(bounds) > 0).all()), f"{path}: a sample without tokens")
    require(bool(np.isin(tensors["loss_mask"], (0, 1)).all()), f"{path}: a mask value that is not 0 or 1")
    for index, begin, end in samples_of(tensors):
        require_equal(
            token_hash(tensors, begin, end),
            int(tensors["token_hash"][index]),
            f"{path}: token hash of sample {tensors['sample_id'][index]}",
        )


def check_corpus_chunk(work, chunk):
    """Returns {(sample_id, variant): (ids, mask, content_hash, token_hash)} of the chunk."""
    path = work.corpus_path(chunk)
    tensors = tensors_of(path)
    check_header(path, tensors, CORPUS_TENSORS)
    check_samples(path, tensors)
    ((samples, tokens, supervised, size, digest),) = work.query(
        "SELECT samples, tokens, supervised_tokens, corpus_bytes, corpus_digest FROM chunks WHERE chunk = ?", chunk
    )
    require_equal(len(tensors["sample_id"]), samples, f"{path}: samples")
    require_equal(len(tensors["input_ids"]), tokens, f"{path}: tokens")
    require_equal(int(tensors["loss_mask"].sum()), supervised, f"{path}: supervised tokens")
    require_equal(path.stat().st_size, size, f"{path}: bytes")
    require_equal(hash128(path.read_bytes()).hex(), digest, f"{path}: digest")
    found = {}
    for index, begin, end in samples_of(tensors):
        key = (int(tensors["sample_id"][index]), int(tensors["variant"][index]))
        require(key not in found, f"{path}: sample {key} stands there twice")
        found[key] = (
            tensors["input_ids"][begin:end],
            tensors["loss_mask"][begin:end],
            tensors["content_hash"][index].tobytes(),
            int(tensors["token_hash"][index]),
        )
    for sample_id, content_hash in work.query(
        "SELECT sample_id, content_hash FROM conversations WHERE chunk = ?", chunk
    ):
        require((sample_id, 0) in found, f"{path}: conversation {sample_id} has no sample")
        require_equal(found[sample_id, 0][2], content_hash, f"{path}: content hash of conversation {sample_id}")
    return found


def check_states(path, tensors, header, data_start, config):
    states = tensors["hidden_states"]
    metadata = header["__metadata__"]
    layers = json.loads(metadata["layers"])
    require_equal(list(states.shape[1:]), [len(layers), config["hidden_size"]], f"{path}: layers and hidden size")
    require_equal(metadata["final_norm"], "pre", f"{path}: final_norm")
    count = config["num_hidden_layers"]
    require_equal(layers, [2, count // 2, count - 3, count], f"{path}: layers")
    require_equal((data_start + header["hidden_states"]["data_offsets"][0]) % 4096, 0, f"{path}: states' place")
    exponents = (states >> 7) & 0xFF
    require(not bool((exponents == 0xFF).any()), f"{path}: a state that is not finite")
    require(bool((states.reshape(len(states), -1) != 0).any(axis=1).all()), f"{path}: a token without states")


def check_shard(work, chunk, shard, corpus, config):
    """Returns the keys of the shard's samples."""
    ((file, size, samples, tokens, first_batch, batches),) = work.query(
        "SELECT file, bytes, samples, tokens, first_batch, batches FROM shards WHERE chunk = ? AND shard = ?", chunk, shard
    )
    path = work.path / file
    tensors = tensors_of(path)
    header, data_start = check_header(path, tensors, SHARD_TENSORS)
    require_equal(path.stat().st_size, size, f"{path}: bytes")
    require_equal(len(tensors["sample_id"]), samples, f"{path}: samples")
    require_equal(len(tensors["input_ids"]), tokens, f"{path}: tokens")
    check_samples(path, tensors)
    check_states(path, tensors, header, data_start, config)
    require(not bool(tensors["sample_state"].any()), f"{path}: quarantined samples")
    keys = list(zip(tensors["sample_id"].tolist(), tensors["variant"].tolist(), strict=True))
    planned = work.query(
        "SELECT sample_id, variant FROM samples WHERE chunk = ? AND batch >= ? AND batch < ? ORDER BY position",
        chunk, first_batch, first_batch + batches,
    )
    require_equal(keys, planned, f"{path}: order of the samples")
    sizes = work.query(
        "SELECT samples FROM batches WHERE chunk = ? AND shard = ? ORDER BY batch", chunk, shard
    )
    require_equal(tensors["batch_offsets"].tolist(), [0, *np.cumsum(sizes).tolist()], f"{path}: batch_offsets")
    for index, begin, end in samples_of(tensors):
        ids, mask, content_hash, tokens_hash = corpus[keys[index]]
        where = f"{path}: sample {keys[index]}"
        require(np.array_equal(tensors["input_ids"][begin:end], ids), f"{where}: other ids than in the corpus")
        require(np.array_equal(tensors["loss_mask"][begin:end], mask), f"{where}: another mask than in the corpus")
        require_equal(tensors["content_hash"][index].tobytes(), content_hash, f"{where}: content hash")
        require_equal(int(tensors["token_hash"][index]), tokens_hash, f"{where}: token hash")
        checksum = hash64(ids.tobytes(), mask.tobytes(), tensors["hidden_states"][begin:end].tobytes())
        require_equal(int(tensors["checksum"][index]), checksum, f"{where}: checksum")
    return keys


def check_vocabulary(work, frequencies):
    d2t = np.load(work.path / "vocab" / "d2t.npy", allow_pickle=False)
    t2d = np.load(work.path / "vocab" / "t2d.npy", allow_pickle=False)
    counts = np.load(work.path / "vocab" / "token_freq.npy", allow_pickle=False)
    require_equal((d2t.dtype, t2d.dtype, counts.dtype), (np.dtype("<i8"), np.dtype(bool), np.dtype("<i8")), "vocab dtypes")
    require_equal(len(t2d), len(frequencies), "rows of t2d")
    require(np.array_equal(counts, frequencies), "token_freq differs from the supervised tokens of the corpus")
    targets = np.arange(len(d2t)) + d2t
    require(np.array_equal(targets, np.flatnonzero(t2d)), "d2t and t2d name different tokens, or d2t is not ascending")
    json.loads((work.path / "vocab" / "report.json").read_text(encoding="utf-8"))


def check_manifest(work):
    manifest = json.loads((work.path / "manifest.json").read_text(encoding="utf-8"))
    listed = {entry["path"]: entry for group in ("corpus", "vocab", "shards") for entry in manifest[group]}
    present = {name for name in work.published_files() if name.split("/")[0] in ("corpus", "vocab", "shards")}
    require_equal(set(listed), present, "files of the manifest")
    for name, entry in listed.items():
        require_equal((work.path / name).stat().st_size, entry["bytes"], f"manifest: bytes of {name}")
    for entry in (*manifest["corpus"], *manifest["vocab"]):
        require_equal(hash128((work.path / entry["path"]).read_bytes()).hex(), entry["digest"], f"digest of {entry['path']}")


def check(work, model, least):
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    check_state(work, least)
    print(f"state.db: {', '.join(f'at least {count} {table}' for table, count in least.items())}; all published")
    frequencies = np.zeros(config["vocab_size"], dtype=np.int64)
    samples = tokens = shards = 0
    for chunk in work.chunks():
        corpus = check_corpus_chunk(work, chunk)
        for ids, mask, _, _ in corpus.values():
            frequencies += np.bincount(ids[mask == 1], minlength=len(frequencies))
            tokens += len(ids)
        samples += len(corpus)
        stored = []
        for (shard,) in work.query("SELECT shard FROM shards WHERE chunk = ? ORDER BY shard", chunk):
            stored.extend(check_shard(work, chunk, shard, corpus, config))
            shards += 1
        require_equal(sorted(stored), sorted(corpus), f"chunk {chunk}: samples in its shards")
    print(f"corpus and shards: {samples} samples, {tokens} tokens, {shards} shards agree with each other and with state.db")
    check_vocabulary(work, frequencies)
    print("vocab: d2t, t2d and token_freq agree with the corpus")
    check_manifest(work)
    print("manifest.json: lists what is there")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the work folder")
    parser.add_argument("--model", type=Path, help="the model's folder (default: the demo model)")
    parser.add_argument("--least", default=DEMO_LEAST, help=f"smallest counts (default: {DEMO_LEAST})")
    arguments = parser.parse_args()
    model = arguments.model or Path(__file__).resolve().parent.parent / "models" / "smollm2-135m-instruct"
    least = {name: int(count) for name, _, count in (part.partition("=") for part in arguments.least.split(",") if part)}
    try:
        check(WorkFolder(arguments.work), model, least)
    except (CheckFailed, OSError, KeyError, ValueError) as error:
        print(f"check_demo: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
