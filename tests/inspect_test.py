"""`draftmill inspect` of a shard and of a sample: ids, text, mask and norms against the shard, read with Python's own libraries."""

import json

import numpy as np
import pytest

from finished_run import BINARY, draftmill, make_finished_run
from work_folder import tensors_of

pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
LAYERS = ("x_2", "x_3", "x_4", "x_7")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return make_finished_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def stored(work):
    """The samples of the first shard: (ids, mask, mean norm of each layer)."""
    tensors = tensors_of(work / "shards" / "000000" / "c000000-s000.safetensors")
    samples = {}
    bounds = tensors["cu_seqlens"]
    for i, sample_id in enumerate(tensors["sample_id"].tolist()):
        part = slice(int(bounds[i]), int(bounds[i + 1]))
        states = (np.array(tensors["hidden_states"][part]).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        norms = np.sqrt((states**2).sum(-1)).mean(0)
        samples[sample_id] = (tensors["input_ids"][part].tolist(), tensors["loss_mask"][part].tolist(), norms)
    return samples


def inspect(work, *arguments):
    shown = draftmill("inspect", work, *arguments)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def test_a_sample(work, stored):
    for sample_id, (ids, mask, norms) in stored.items():
        (facts,) = json.loads(inspect(work, sample_id, "--json"))
        assert facts["input_ids"] == ids and facts["loss_mask"] == mask
        assert tuple(facts["mean_norms"]) == LAYERS
        assert list(facts["mean_norms"].values()) == pytest.approx(norms, rel=1e-6)
        answers = [message["content"] for message in facts["conversation"]["messages"] if message["role"] == "assistant"]
        assert [part["text"].removesuffix("<|im_end|>") for part in facts["text"] if part["supervised"]] == answers


def test_a_sample_for_people(work, stored):
    sample_id, (ids, mask, norms) = next(iter(stored.items()))
    text = inspect(work, sample_id, "--ids")
    assert f"x_2: {norms[0]:.4g}" in text
    lines = text.rstrip("\n").splitlines()[-len(ids) :]
    assert [int(line.split()[1]) for line in lines] == ids
    assert [line.split()[2:3] == ["supervised"] for line in lines] == [value == 1 for value in mask]


def test_a_shard(work, stored):
    facts = json.loads(inspect(work, "c000000-s000", "--json"))
    assert facts["metadata"]["layers"] == json.dumps([2, 3, 4, 7], separators=(",", ":"))
    assert {row["sample_id"]: row["tokens"] for row in facts["samples"]} == {key: len(ids) for key, (ids, _, _) in stored.items()}
    for row in facts["mean_norms"]:
        assert [row[layer] for layer in LAYERS] == pytest.approx(stored[row["sample_id"]][2], rel=1e-6)
    assert len(facts["mean_norms"]) == len(stored)
