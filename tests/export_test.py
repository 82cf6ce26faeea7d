"""Exports of a finished run, read back with the libraries that their trainers use, value by value against the shards.

The expected values are made here from the shards with numpy and torch alone: nothing of draftmill's own code takes part.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from finished_run import BINARY, draftmill, make_finished_run
from work_folder import tensors_of

torch = pytest.importorskip("torch")
pyarrow_ipc = pytest.importorskip("pyarrow.ipc")
from safetensors.torch import load_file  # noqa: E402

pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
FORMATS = ("specforge", "speculators", "modelopt", "torchspec", "jsonl")


class Stored:
    """What the shards hold, by (sample_id, variant), in the order of the keys."""

    def __init__(self, work):
        self.work = work
        self.manifest = json.loads((work / "manifest.json").read_text(encoding="utf-8"))
        self.samples = {}
        for entry in self.manifest["shards"]:
            tensors = tensors_of(work / entry["path"])
            bounds = tensors["cu_seqlens"]
            for i in range(len(bounds) - 1):
                part = slice(int(bounds[i]), int(bounds[i + 1]))
                key = (int(tensors["sample_id"][i]), int(tensors["variant"][i]))
                self.samples[key] = {
                    "ids": torch.from_numpy(tensors["input_ids"][part].astype(np.int64)),
                    "mask": torch.from_numpy(tensors["loss_mask"][part].astype(np.int64)),
                    "states": torch.from_numpy(np.array(tensors["hidden_states"][part]).view(np.int16)).view(torch.bfloat16),
                    "content_hash": bytes(tensors["content_hash"][i]),
                }
        self.samples = dict(sorted(self.samples.items()))
        self.d2t = torch.from_numpy(np.load(work / "vocab" / "d2t.npy"))
        self.t2d = torch.from_numpy(np.load(work / "vocab" / "t2d.npy"))
        norm = load_file(work / "final_norm.safetensors")
        self.weight = norm["weight"].to(torch.bfloat16)
        header = (work / "final_norm.safetensors").read_bytes()
        length = int.from_bytes(header[:8], "little")
        self.epsilon = float(json.loads(header[8 : 8 + length])["__metadata__"]["epsilon"])

    def rows(self, eval_fraction=0.0):
        """(key, sample) with train before eval, and how many rows train."""
        train, held_out = [], []
        for key, sample in self.samples.items():
            number = int.from_bytes(sample["content_hash"][:8], "little")
            (held_out if number < eval_fraction * 2**64 else train).append((key, sample))
        return train + held_out, len(train)

    def post_norm(self, states):
        """The stated computation, in torch: LlamaRMSNorm with the squares summed in float64."""
        values = states[:, -1].float()
        mean = values.double().square().mean(-1, keepdim=True).float()
        normalised = values * torch.rsqrt(mean + self.epsilon)
        return self.weight * normalised.to(torch.bfloat16)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return make_finished_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def stored(work):
    return Stored(work)


def export(work, form, output, *options, **keywords):
    finished = draftmill("export", work, form, "--output", output, "--json", *options, **keywords)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def load(path):
    return torch.load(path, weights_only=True, mmap=True)


def bits(tensor):
    return tensor.contiguous().view(torch.int16)


def check_sums(report, stored, output):
    """What the command printed is what is there."""
    assert report["samples"] == len(stored.samples)
    assert report["tokens"] == sum(len(sample["ids"]) for sample in stored.samples.values())
    assert report["supervised_tokens"] == sum(int(sample["mask"].sum()) for sample in stored.samples.values())
    files = [path for path in output.rglob("*") if path.is_file() and path.name != "export.json"]
    assert report["bytes"] == sum(path.stat().st_size for path in files)
    assert report["set_in_trainer"]
    facts = json.loads((output / "export.json").read_text(encoding="utf-8"))
    assert facts["complete"] and facts["totals"]["samples"] == report["samples"]
    assert not output.with_name(output.name + ".partial").exists()


def test_specforge(work, stored, tmp_path):
    output = tmp_path / "specforge"
    check_sums(export(work, "specforge", output), stored, output)
    rows, _ = stored.rows()
    for i, (_, sample) in enumerate(rows):
        group = i // 2000 * 2000
        data = load(output / f"rows_{group}-{group + 2000}" / f"data_{i}.ckpt")
        tokens = len(sample["ids"])
        assert set(data) == {"input_ids", "loss_mask", "aux_hidden_state", "hidden_state"}
        assert torch.equal(data["input_ids"], sample["ids"]) and data["input_ids"].dtype == torch.int64
        assert torch.equal(data["loss_mask"], sample["mask"]) and data["loss_mask"].dtype == torch.int64
        assert torch.equal(bits(data["aux_hidden_state"]), bits(sample["states"][:, :3].reshape(1, tokens, -1)))
        assert torch.equal(bits(data["hidden_state"]), bits(stored.post_norm(sample["states"])[None]))
    mapping = load(output / "vocab_mapping" / "vocab_mapping.pt")
    assert torch.equal(mapping["d2t"], stored.d2t) and torch.equal(mapping["t2d"], stored.t2d)
    assert torch.equal(torch.nonzero(mapping["t2d"])[:, 0], mapping["d2t"] + torch.arange(len(mapping["d2t"])))


def test_a_split_gives_folders_that_are_numbered_apart(work, stored, tmp_path):
    output = tmp_path / "specforge"
    report = export(work, "specforge", output, "--select", "eval=0.3")
    rows, train = stored.rows(0.3)
    assert 0 < train < len(rows)
    assert (report["train_samples"], report["eval_samples"]) == (train, len(rows) - train)
    for side, part in (("train", rows[:train]), ("eval", rows[train:])):
        for i, (_, sample) in enumerate(part):
            assert torch.equal(load(output / side / "rows_0-2000" / f"data_{i}.ckpt")["input_ids"], sample["ids"])
    assert len(list(output.rglob("*.ckpt"))) == len(rows)


def test_modelopt(work, stored, tmp_path):
    output = tmp_path / "modelopt"
    check_sums(export(work, "modelopt", output), stored, output)
    files = sorted((output / "train").glob("*.pt"))
    assert len(files) == len(stored.samples)
    for path, (key, sample) in zip(files, stored.samples.items(), strict=True):
        data = load(path)
        assert data["conversation_id"] == path.stem == f"{key[0]:09}-{key[1]}"
        assert data["hidden_states_prenorm"] is False
        assert torch.equal(data["input_ids"], sample["ids"]) and torch.equal(data["loss_mask"], sample["mask"])
        assert torch.equal(bits(data["hidden_states"]), bits(stored.post_norm(sample["states"])))
        assert torch.equal(bits(data["aux_hidden_states"]), bits(sample["states"][:, :3].flatten(1)))
    assert torch.equal(load(output / "d2t.pt"), stored.d2t)


def unpacked(text):
    """torchspec/data/utils.py: runs, the first one of unsupervised tokens."""
    lengths = [int(length) for length in text.split(",")]
    return torch.cat([torch.full((length,), i % 2) for i, length in enumerate(lengths)])


def test_torchspec(work, stored, tmp_path):
    """Keys, shapes and names of torchspec/offline/dataset.py, which refuses what differs."""
    output = tmp_path / "torchspec"
    check_sums(export(work, "torchspec", output, "--select", "eval=0.3"), stored, output)
    assert json.loads((output / "dataset.json").read_text()) == {"version": 1, "last_hidden_states_prenorm": False}
    rows, train = stored.rows(0.3)
    lines = [json.loads(line) for line in (output / "manifest.jsonl").read_text().splitlines()]
    assert len(lines) == len(rows)
    for i, (line, (key, sample)) in enumerate(zip(lines, rows, strict=True)):
        data_id = f"{key[0]}-{key[1]}"
        name = f"samples/{hashlib.sha1(data_id.encode()).hexdigest()}.pt"
        assert line == {"split": "train" if i < train else "eval", "data_id": data_id, "file": name}
        data = load(output / name)
        assert list(data) == ["input_ids", "hidden_states", "last_hidden_states", "data_id", "packed_loss_mask", "metadata"]
        assert data["data_id"] == data_id and data["metadata"] == {}
        assert torch.equal(data["input_ids"], sample["ids"]) and data["input_ids"].dtype == torch.int64
        assert torch.equal(bits(data["hidden_states"]), bits(sample["states"][:, :3].flatten(1)))
        assert torch.equal(bits(data["last_hidden_states"]), bits(stored.post_norm(sample["states"])))
        assert torch.equal(unpacked(data["packed_loss_mask"]), sample["mask"])
    mapping = load(output / "vocab_mapping.pt")
    assert torch.equal(mapping["d2t"], stored.d2t) and torch.equal(mapping["t2d"], stored.t2d)


def test_speculators(work, stored, tmp_path):
    output = tmp_path / "speculators"
    report = export(work, "speculators", output, "--select", "eval=0.3")
    check_sums(report, stored, output)
    rows, train = stored.rows(0.3)
    (ratio,) = (line.split()[1] for line in report["set_in_trainer"] if line.startswith("--train-data-ratio"))
    assert int(len(rows) * float(ratio)) == train
    state = json.loads((output / "state.json").read_text())
    assert state["_format_type"] == "torch"
    tables = [pyarrow_ipc.open_stream(output / file["filename"]).read_all() for file in state["_data_files"]]
    columns = {name: [value for table in tables for value in table[name].to_pylist()] for name in tables[0].column_names}
    assert list(columns) == ["input_ids", "loss_mask", "seq_len"]
    assert str(tables[0].schema.field("input_ids").type) == "list<item: int64>"
    assert columns["seq_len"] == [len(sample["ids"]) for _, sample in rows]
    for i, (_, sample) in enumerate(rows):
        assert columns["input_ids"][i] == sample["ids"].tolist() and columns["loss_mask"][i] == sample["mask"].tolist()
        data = load_file(output / "hidden_states" / f"hs_{i}.safetensors")
        assert torch.equal(data["token_ids"], sample["ids"]) and data["token_ids"].dtype == torch.int64
        assert torch.equal(bits(data["hidden_states"]), bits(sample["states"]))
    size = len(stored.d2t)
    assert np.array_equal(np.load(output / f"d2t-{size}.npy"), stored.d2t.numpy())
    assert np.array_equal(np.load(output / f"t2d-{size}.npy"), stored.t2d.numpy())
    frequencies = np.load(work / "vocab" / "token_freq.npy")
    assert load(output / "token_freq.pt") == {int(i): int(frequencies[i]) for i in np.flatnonzero(frequencies)}


def test_speculators_folder_opens_with_datasets(work, stored, tmp_path):
    datasets = pytest.importorskip("datasets")
    output = tmp_path / "speculators"
    export(work, "speculators", output)
    rows = datasets.load_from_disk(str(output))
    assert rows.format["type"] == "torch"
    for row, sample in zip(rows, stored.samples.values(), strict=True):
        assert torch.equal(row["input_ids"], sample["ids"]) and torch.equal(row["loss_mask"], sample["mask"])


def test_jsonl(work, stored, tmp_path):
    output = tmp_path / "jsonl"
    check_sums(export(work, "jsonl", output), stored, output)
    lines = [json.loads(line) for line in (output / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    for i, (line, (key, sample)) in enumerate(zip(lines, stored.samples.items(), strict=True)):
        assert (line["row"], line["sample_id"], line["variant"]) == (i, *key)
        assert line["input_ids"] == sample["ids"].tolist() and line["loss_mask"] == sample["mask"].tolist()
        assert line["text"] and line["source"]


def test_rows_say_where_they_came_from(work, stored, tmp_path):
    export(work, "modelopt", tmp_path / "modelopt", "--select", "eval=0.3")
    lines = [json.loads(line) for line in (tmp_path / "modelopt" / "rows.jsonl").read_text().splitlines()]
    rows, train = stored.rows(0.3)
    assert [line["row"] for line in lines] == list(range(len(rows)))
    assert [(line["sample_id"], line["variant"]) for line in lines] == [key for key, _ in rows]
    assert [line["split"] for line in lines] == ["train"] * train + ["eval"] * (len(rows) - train)
    for line in lines:
        assert (tmp_path / "modelopt" / line["file"]).stat().st_size == line["bytes"]


def test_sources_and_ranges_select(work, stored, tmp_path):
    export(work, "jsonl", tmp_path / "all")
    rows = [json.loads(line) for line in (tmp_path / "all" / "train.jsonl").read_text().splitlines()]
    source = rows[0]["source"]
    wanted = [(r["sample_id"], r["variant"]) for r in rows if r["source"] == source and 3 <= r["sample_id"] <= 20]
    export(work, "jsonl", tmp_path / "some", "--select", f"source={Path(source).name}", "--select", "samples=3-20")
    taken = [json.loads(line) for line in (tmp_path / "some" / "train.jsonl").read_text().splitlines()]
    assert [(r["sample_id"], r["variant"]) for r in taken] == wanted
    assert [r["row"] for r in taken] == list(range(len(wanted)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nonsense",), "there is no export format"),
        (("jsonl", "--select", "samples=9-3"), "samples=FIRST-LAST"),
        (("jsonl", "--select", "split=eval"), "needs eval=FRACTION"),
        (("jsonl", "--select", "source=absent.jsonl"), "has no such source"),
        (("jsonl", "--select", "samples=900000-900001"), "takes no sample"),
    ],
)
def test_refusals_name_what_is_wrong(work, tmp_path, arguments, text):
    refused = draftmill("export", work, *arguments, "--output", tmp_path / "out")
    assert refused.returncode == 2
    assert text in refused.stderr and "Nothing was written" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_without_the_norm_post_norm_formats_are_refused(work, tmp_path):
    copy = tmp_path / "work"
    shutil.copytree(work, copy)
    (copy / "final_norm.safetensors").unlink()
    refused = draftmill("export", copy, "specforge", "--output", tmp_path / "out")
    assert refused.returncode == 2 and "final_norm.safetensors" in refused.stderr


def test_a_second_export_finds_the_first(work, tmp_path):
    first = export(work, "modelopt", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    second = export(work, "modelopt", tmp_path / "out")
    assert not first["was_there"] and second["was_there"]
    assert {**first, "was_there": True} == second
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    other = draftmill("export", work, "modelopt", "--output", tmp_path / "out", "--select", "eval=0.3")
    assert other.returncode == 2 and "is not this export" in other.stderr


@pytest.mark.parametrize("form", ["specforge", "speculators", "modelopt", "torchspec", "jsonl"])
def test_a_finished_export_that_lost_something_is_not_taken_for_whole(work, tmp_path, form):
    output = tmp_path / "out"
    export(work, form, output)
    (output / "cache-of-a-trainer").write_bytes(b"1")
    assert export(work, form, output)["was_there"]
    largest = max((path for path in output.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 100)
    refused = draftmill("export", work, form, "--output", output)
    assert refused.returncode == 2 and "missing or cut" in refused.stderr
    largest.unlink()
    assert draftmill("export", work, form, "--output", output).returncode == 2


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("form", ["specforge", "speculators"])
def test_a_killed_export_goes_on_to_the_same_bytes(work, tmp_path, form):
    export(work, form, tmp_path / "whole", "--threads", "3")
    command = [BINARY, "export", work, form, "--output", tmp_path / "killed", "--threads", "1"]
    kills = 0
    for marks in (1, 3, 5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        folder = tmp_path / "killed.partial" / "finished-shards"
        while process.poll() is None:
            if folder.is_dir() and len(list(folder.iterdir())) >= marks:
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
                break
            time.sleep(0.0005)
    export(work, form, tmp_path / "killed", "--threads", "2")
    assert kills > 0
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")


def test_a_damaged_sample_is_never_exported(work, stored, tmp_path):
    copy = tmp_path / "work"
    shutil.copytree(work, copy)
    shard = copy / stored.manifest["shards"][0]["path"]
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    failed = draftmill("export", copy, "speculators", "--output", tmp_path / "out")
    assert failed.returncode == 1
    assert "does not match its checksum" in failed.stderr and "verify --repair" in failed.stderr
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_survived(work, tmp_path):
    """A full file system refuses the export; with room again, the same command writes the same bytes."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    with contextlib.suppress(OSError):
        (place / "filler").write_bytes(bytes(64 << 20))
    try:
        full = draftmill("export", work, "modelopt", "--output", place / "out")
        assert full.returncode == 75, full.stderr
        assert "free space and give the same command again" in full.stderr
        (place / "filler").unlink()
        export(work, "modelopt", place / "out")
        export(work, "modelopt", tmp_path / "elsewhere")
        assert tree(place / "out") == tree(tmp_path / "elsewhere")
    finally:
        subprocess.run(["umount", place], check=False)


def test_archives_are_plain_aligned_zip_files(work, tmp_path):
    export(work, "modelopt", tmp_path / "out")
    path = next((tmp_path / "out" / "train").glob("*.pt"))
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for record in archive.infolist():
            name, extra = (int.from_bytes(raw[record.header_offset + at : record.header_offset + at + 2], "little") for at in (26, 28))
            assert record.compress_type == zipfile.ZIP_STORED
            assert (record.header_offset + 30 + name + extra) % 64 == 0
            assert record.date_time == (1980, 1, 1, 0, 0, 0)
