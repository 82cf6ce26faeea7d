"""How fast a work folder opens and a sample is read. The least of several times counts, whatever else the machine does."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import conftest
import numpy as np
import pytest
from conftest import Truth, write_manifest, write_shard

from draftmill import Dataset

TIMES = 30


def least_milliseconds(action: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def test_a_folder_of_a_thousand_shards_opens_within_100_ms(tmp_path: Path) -> None:
    truth = Truth()
    shards = [write_shard(tmp_path, i // 10, i % 10, [(2 * i, 0, 5), (2 * i + 1, 0, 4)], truth) for i in range(1000)]
    write_manifest(tmp_path, shards)
    assert len(Dataset(tmp_path)) == 2000
    assert least_milliseconds(lambda: Dataset(tmp_path)[1234]) < 100


def test_a_sample_of_a_thousand_tokens_is_read_within_1_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SmolLM2's size, from the page cache, copied out of the mapped file."""
    monkeypatch.setattr(conftest, "HIDDEN_SIZE", 576)
    write_manifest(tmp_path, [write_shard(tmp_path, 0, 0, [(i, 0, 1000) for i in range(20)], Truth())])
    facts = json.loads((tmp_path / "manifest.json").read_text())
    facts["facts"]["model"]["hidden_size"] = 576
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    dataset = Dataset(tmp_path)
    rows = iter(np.random.default_rng(0).integers(0, 20, TIMES).tolist())

    def read() -> int:
        sample = dataset[next(rows)]
        assert sample.final is not None
        parts = (sample.input_ids, sample.loss_mask, sample.aux, sample.final)
        return sum(np.array(part).nbytes for part in parts)

    assert least_milliseconds(read) < 1
