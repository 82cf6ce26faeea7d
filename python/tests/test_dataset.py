import sqlite3
from pathlib import Path

import numpy as np
import pytest
from conftest import LAYERS, Truth, shard_metadata, write_manifest, write_safetensors, write_shard

from draftmill import ConventionError, DamageError, Dataset, FormatError, SampleKey


def test_rows_are_dense_and_in_the_order_of_keys(work: Path, truth: Truth) -> None:
    dataset = Dataset(work)
    assert [sample.key for sample in dataset] == list(dataset.keys()) == truth.keys
    assert len(dataset) == 6
    assert dataset.lengths().tolist() == [len(truth.ids[key]) for key in truth.keys]
    assert dataset[-1].key == truth.keys[-1]
    with pytest.raises(IndexError):
        dataset[6]


def test_values_are_those_of_the_shards(work: Path, truth: Truth) -> None:
    dataset = Dataset(work)
    for row, key in enumerate(truth.keys):
        sample = dataset.get(*key)
        assert (sample.row, sample.key) == (row, SampleKey(*key))
        assert np.array_equal(sample.input_ids, truth.ids[key])
        assert np.array_equal(sample.loss_mask, truth.mask[key])
        assert np.array_equal(sample.aux, truth.states[key][:, :3])
        assert sample.final is not None and np.array_equal(sample.final, truth.states[key][:, 3])
    for absent in ((2, 0), (1, 2), (17, 0)):  # quarantined, no such variant, no such conversation
        with pytest.raises(KeyError):
            dataset.get(*absent)


def test_arrays_are_views_and_never_reach_the_file(work: Path) -> None:
    dataset = Dataset(work)
    first = dataset[0]
    assert not first.aux.flags.owndata and not first.input_ids.flags.owndata
    before = (work / "shards/000000/c000000-s000.safetensors").read_bytes()
    first.input_ids[:] = 7
    assert (work / "shards/000000/c000000-s000.safetensors").read_bytes() == before


def test_verify_sees_a_changed_byte(work: Path) -> None:
    path = work / "shards/000001/c000001-s000.safetensors"
    data = bytearray(path.read_bytes())
    data[4096 + 20] ^= 1
    path.write_bytes(data)
    dataset = Dataset(work, verify=True)
    assert len(dataset[0].input_ids) == 5
    with pytest.raises(DamageError, match="verify --repair"):
        dataset.get(5)


def test_sides_of_a_split_are_those_of_the_content_hash(work: Path, truth: Truth) -> None:
    numbers = {key: int.from_bytes(bytes(truth.content_hash[key][:8]), "little") / 2**64 for key in truth.keys}
    fraction = sorted(numbers.values())[2] + 1e-9
    held_out = [key for key in truth.keys if numbers[key] < fraction]
    assert list(Dataset(work, split="eval", eval_fraction=fraction).keys()) == held_out
    train = Dataset(work, split="train", eval_fraction=fraction)
    assert list(train.keys()) == [key for key in truth.keys if key not in held_out]
    assert [train[row].row for row in range(len(train))] == list(range(len(train)))


def test_sources_are_looked_up_in_the_database(work: Path) -> None:
    with sqlite3.connect(work / "state.db") as database:
        database.execute("CREATE TABLE sources (source INTEGER, path TEXT)")
        database.execute("CREATE TABLE conversations (sample_id INTEGER, source INTEGER)")
        database.executemany("INSERT INTO sources VALUES (?, ?)", [(0, "data/a.jsonl"), (1, "data/b.jsonl")])
        database.executemany("INSERT INTO conversations VALUES (?, ?)", [(i, i % 2) for i in range(6)])
    keys = list(Dataset(work, sources=["b.jsonl"]).keys())
    assert [key.sample_id for key in keys] == [1, 1, 3, 5]
    with pytest.raises(ConventionError, match="none of the sources"):
        Dataset(work, sources=["c.jsonl"])


def test_the_final_state_after_the_norm(work: Path, truth: Truth) -> None:
    torch = pytest.importorskip("torch")
    dataset = Dataset(work, final_norm="post")
    for row, key in enumerate(truth.keys):
        stored = torch.from_numpy(truth.states[key][:, 3].view(np.int16)).view(torch.bfloat16)
        values = stored.float()
        mean = values.double().square().mean(-1, keepdim=True).float()
        normalised = (values * torch.rsqrt(mean + 1e-5)).to(torch.bfloat16)
        expected = torch.from_numpy(truth.weight).to(torch.bfloat16) * normalised
        final = dataset[row].final
        assert final is not None
        assert np.array_equal(final, expected.view(torch.int16).numpy().view(np.uint16))


def test_shifts(work: Path, truth: Truth) -> None:
    key = truth.keys[0]
    ids, mask, states = truth.ids[key], truth.mask[key], truth.states[key]
    specforge = Dataset(work, shift="specforge")[0]
    assert specforge.input_ids.tolist() == [*ids[1:].tolist(), 0]
    assert specforge.loss_mask.tolist() == [*mask[:-1].tolist(), 0]
    assert specforge.final is not None and np.array_equal(specforge.final[:-1], states[1:, 3])
    assert np.array_equal(specforge.aux, states[:, :3]) and not specforge.final[-1].any()
    for shift, first in (("speculators", 1), ("modelopt", 0)):
        sample = Dataset(work, shift=shift)[0]
        assert sample.input_ids.tolist() == ids[1:].tolist() and sample.loss_mask.tolist() == mask[1:].tolist()
        assert np.array_equal(sample.aux, states[:-1, :3])
        assert sample.final is not None and np.array_equal(sample.final, states[1:, 3])
        assert sample.position_ids.tolist() == list(range(first, first + len(ids) - 1))
        assert Dataset(work, shift=shift).lengths()[0] == len(ids) - 1


def test_what_cannot_be_given_is_refused_by_name(work: Path, truth: Truth) -> None:
    with pytest.raises(ConventionError, match="no shift 'medusa'"):
        Dataset(work, shift="medusa")
    with pytest.raises(ConventionError, match="needs eval_fraction"):
        Dataset(work, split="eval")
    (work / "final_norm.safetensors").unlink()
    with pytest.raises(ConventionError, match=r"final_norm\.safetensors"):
        Dataset(work, final_norm="post")
    write_shard(work, 1, 0, [(4, 0, 8), (5, 0, 3)], truth, extract_fingerprint="e2")
    with pytest.raises(ConventionError, match="under fingerprint e2"):
        Dataset(work).get(4)


@pytest.mark.parametrize(
    ("key", "value"),
    [("format_version", "2"), ("codec", "exponent12"), ("final_norm", "post"), ("shift", "one"), ("dtype", "float8")],
)
def test_unknown_versions_and_forms_are_refused_by_name(work: Path, truth: Truth, key: str, value: str) -> None:
    write_shard(work, 1, 0, [(4, 0, 8), (5, 0, 3)], truth, **{key: value})
    with pytest.raises(FormatError, match=value):
        Dataset(work).get(4)


def test_a_run_that_discarded_its_shards_is_refused(work: Path) -> None:
    write_manifest(work, [], discarded_shards=[{"path": "shards/000000/c000000-s000.safetensors"}])
    with pytest.raises(FormatError, match=r"write\.discard_after_publish.*no data set"):
        Dataset(work)


@pytest.mark.parametrize("outside", ["/etc/passwd", "../other/shards/000000/c000000-s000.safetensors"])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(work: Path, outside: str) -> None:
    write_manifest(work, [{"path": outside, "samples": 1, "tokens": 1, "quarantined": 0, "bytes": 1, "digest": ""}])
    with pytest.raises(FormatError, match="leads out of the work folder"):
        Dataset(work)


def test_a_later_manifest_is_refused(work: Path) -> None:
    write_manifest(work, [], format_version=2)
    with pytest.raises(FormatError, match="version 1"):
        Dataset(work)
    (work / "manifest.json").unlink()
    with pytest.raises(FormatError, match="no finished run"):
        Dataset(work)


def test_a_cut_file_is_refused(work: Path) -> None:
    path = work / "shards/000001/c000001-s000.safetensors"
    path.write_bytes(path.read_bytes()[:4200])
    with pytest.raises(FormatError, match="do not fit"):
        Dataset(work).get(4)


def test_a_shard_that_is_something_else(work: Path) -> None:
    path = work / "shards/000001/c000001-s000.safetensors"
    write_safetensors(path, {}, {**shard_metadata(1, 0), "format": "draftmill.corpus_chunk"})
    with pytest.raises(FormatError, match="corpus_chunk"):
        Dataset(work).get(4)


def test_layers(work: Path) -> None:
    dataset = Dataset(work)
    assert dataset.layers == LAYERS and dataset.aux_layers == LAYERS[:-1] and dataset.has_final_state
