"""Bad input of every kind: a message that names file, place and next step, the right exit status, nothing harmed.

Black box over the built program, on a model of a few thousand weights. Whatever is refused is refused in a folder that
holds a finished run, and every byte of that run is compared afterwards.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
COMPLETE, FAILED, NOT_STARTED, WITH_QUARANTINE, RUN_AGAIN = 0, 1, 2, 3, 75
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
GOOD_ROWS = 40
POLL_SECONDS = 0.0005
PIPELINE = """\
work: work
model: {{path: {model}}}
ingest: {{sources: [{{path: {source}}}], chunk_rows: 8}}
limits: {{min_free_disk: 0, memory: 1GiB, max_bad_fraction: {max_bad_fraction}}}
"""

pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")


def conversation(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def good_lines():
    return [json.dumps(conversation(f"What is {i} + 1?", f"It is {i + 1}.")).encode() for i in range(GOOD_ROWS)]


def draftmill(*arguments, **options):
    command = [str(BINARY), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)


def digests(work, names=("ingested", "corpus", "vocab", "shards", "manifest.json")):
    """SHA-256 of every finished file under the names."""
    files = []
    for name in names:
        path = work / name
        files.extend([path] if path.is_file() else (file for file in path.rglob("*") if file.is_file()))
    files = [file for file in files if file.suffix != ".partial"]
    return {str(file.relative_to(work)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def data_digests(work):
    """The digests of what does not name the source files, for runs of the same rows in different folders."""
    naming = ("ingested/index.json", "ingested/rejected.jsonl.zst", "vocab/report.json", "manifest.json")
    return {name: digest for name, digest in digests(work).items() if name not in naming}


def all_digests(work):
    return digests(work, [entry.name for entry in work.iterdir() if entry.name != "run.lock"])


class Place:
    """A folder with pipeline.yaml, data.jsonl and, once it ran, work/."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model
        self.work = folder / "work"
        self.data = folder / "data.jsonl"
        self.pipeline = folder / "pipeline.yaml"
        folder.mkdir(exist_ok=True)
        self.configure()

    def configure(self, source="data.jsonl", max_bad_fraction=0.5):
        text = PIPELINE.format(model=self.model, source=source, max_bad_fraction=max_bad_fraction)
        self.pipeline.write_text(text, encoding="utf-8")

    def write(self, lines):
        self.data.write_bytes(b"".join(line + b"\n" for line in lines))

    def run(self, *arguments, **options):
        return draftmill("run", self.pipeline, *arguments, **options)

    def start(self):
        command = [BINARY, "run", self.pipeline]
        nothing = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_byte_model(tmp_path_factory.mktemp("model") / "bytes")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, model):
    """A finished run that no test changes."""
    place = Place(tmp_path_factory.mktemp("undisturbed") / "run", model)
    place.write(good_lines())
    finished = place.run()
    assert finished.returncode == COMPLETE, finished.stderr
    assert len(list((place.work / "shards").rglob("*.safetensors"))) == GOOD_ROWS // 8
    return place


@pytest.fixture
def finished(tmp_path, undisturbed, model):
    """A finished run of one's own, in a folder of its own with a model of its own."""
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    shutil.copytree(model, tmp_path / "model")
    return Place(tmp_path / "run", tmp_path / "model")


def refused(place, *named, status=NOT_STARTED, **options):
    """Runs, and expects a refusal whose message has all of `named` and that left each byte of the run as it was."""
    before = all_digests(place.work)
    outcome = place.run(**options)
    assert outcome.returncode == status, outcome.stderr
    assert outcome.stdout == ""
    for text in named:
        assert str(text) in outcome.stderr
    assert all_digests(place.work) == before


# --- Rows: the bad one goes to quarantine, the rest goes on ----------------------------------------------------------

ASSISTANT = b'{"role": "assistant", "content": "b"}'
# name: (the row, stage, reason, what the message says)
BAD_ROWS = {
    "broken_json": (b'{"messages": [{"role": "user"', "ingest", "broken_json", "at byte 29 of the row"),
    "broken_utf8": (
        b'{"messages": [{"role": "user", "content": "\xff"}, ' + ASSISTANT + b"]}",
        "ingest",
        "broken_utf8",
        "byte 0xff",
    ),
    "line_of_50_mb": (
        json.dumps(conversation("x" * 50_000_000, "b")).encode(),
        "ingest",
        "row_too_long",
        "ingest.max_row_bytes",
    ),
    "unknown_role": (
        b'{"messages": [{"role": "wizard", "content": "a"}, ' + ASSISTANT + b"]}",
        "ingest",
        "unknown_role",
        'message 0: unknown role "wizard"; known are user, assistant',
    ),
    "empty_conversation": (b'{"messages": []}', "ingest", "empty_conversation", "no messages"),
    "no_assistant_turn": (
        b'{"messages": [{"role": "user", "content": "a"}]}',
        "ingest",
        "no_assistant_turn",
        "no message of the assistant",
    ),
    "number_for_text": (
        b'{"messages": [{"role": "user", "content": 7}, ' + ASSISTANT + b"]}",
        "ingest",
        "wrong_type",
        "message 0: the content must be text",
    ),
    "duplicate_key": (
        b'{"messages": [{"role": "user", "content": "a", "content": "c"}, ' + ASSISTANT + b"]}",
        "ingest",
        "duplicate_key",
        'duplicate key "content"',
    ),
    "pretokenized_id_beyond_the_embedding": (
        b'{"input_ids": [1, 2, 260], "loss_mask": [0, 1, 1]}',
        "tokenize",
        "bad_pretokenized_row",
        "input_ids[2] is 260; it must be at least 0 and less than 260",
    ),
}


@pytest.fixture(scope="module")
def with_bad_rows(tmp_path_factory, model):
    """(place, the run, {name: (line, byte offset)}, the quarantine): each bad row after a good one."""
    place = Place(tmp_path_factory.mktemp("bad-rows") / "run", model)
    good = good_lines()
    lines, places = [], {}
    for index, (name, (row, *_)) in enumerate(BAD_ROWS.items()):
        lines.append(good[index])
        places[name] = (len(lines) + 1, sum(len(line) + 1 for line in lines))
        lines.append(row)
    place.write(lines + good[len(BAD_ROWS) :])
    finished = place.run()
    listed = draftmill("quarantine", place.work, "list", "--json")
    assert listed.returncode == COMPLETE, listed.stderr
    return place, finished, places, json.loads(listed.stdout)["failures"]


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_row_is_named_with_file_line_and_byte(with_bad_rows, name):
    place, _, places, failures = with_bad_rows
    _, stage, reason, message = BAD_ROWS[name]
    line, byte_offset = places[name]
    (failure,) = [failure for failure in failures if failure["line"] == line]
    assert (failure["stage"], failure["reason"], failure["byte_offset"]) == (stage, reason, byte_offset)
    assert failure["file"] == place.data.name, "as the pipeline file names it"
    assert message in failure["message"]


def test_rows_beside_bad_ones_go_on(with_bad_rows, undisturbed):
    place, run, _, failures = with_bad_rows
    assert run.returncode == WITH_QUARANTINE, run.stderr
    assert len(failures) == len(BAD_ROWS)
    assert f"draftmill quarantine {place.work} list" in run.stdout
    samples = "SELECT sum(samples), sum(tokens) FROM chunks"
    counts = []
    for work in (place.work, undisturbed.work):
        with contextlib.closing(sqlite3.connect(f"file:{work / 'state.db'}?mode=ro", uri=True)) as state:
            counts.append(state.execute(samples).fetchone())
    assert counts[0] == counts[1]


def test_too_many_bad_rows_end_the_run(tmp_path, model):
    place = Place(tmp_path / "run", model)
    place.configure(max_bad_fraction=0.01)
    place.write([*good_lines(), b"{"])
    failed = place.run()
    assert failed.returncode == FAILED
    assert f"1 of {GOOD_ROWS + 1} rows" in failed.stderr
    assert "limits.max_bad_fraction (0.01)" in failed.stderr
    assert "draftmill quarantine TARGET list" in failed.stderr
    kept = digests(place.work)
    assert not (place.work / "manifest.json").exists()
    assert place.run().returncode == FAILED
    assert digests(place.work) == kept
    place.configure(max_bad_fraction=0.1)
    assert place.run().returncode == WITH_QUARANTINE
    published = digests(place.work)
    assert published.items() >= kept.items()
    assert "manifest.json" in published


def test_tokenizer_with_ids_beyond_the_embedding(tmp_path):
    place = Place(tmp_path / "run", make_byte_model(tmp_path / "model", vocabulary_size=250))
    place.write(good_lines())
    failed = place.run()
    assert failed.returncode == FAILED
    assert f"{GOOD_ROWS} of {GOOD_ROWS} rows" in failed.stderr
    listed = draftmill("quarantine", place.work, "list", "--json")
    failure = json.loads(listed.stdout)["failures"][0]
    assert (failure["reason"], failure["line"]) == ("id_beyond_vocabulary", 1)
    assert "token id 256 lies beyond the 250 rows of the model's embedding" in failure["message"]
    assert "config.json" in failure["message"]


# --- Sources that cannot be read -------------------------------------------------------------------------------------


def test_empty_file(finished):
    finished.data.write_bytes(b"")
    refused(finished, f"{finished.data}: the file is empty", "Take it out of ingest.sources")


def test_missing_file(finished):
    finished.data.unlink()
    assert finished.run().returncode == COMPLETE  # what was ingested is in the work folder
    new = finished.run("--work", finished.folder / "new")
    assert new.returncode == NOT_STARTED and not (finished.folder / "new").exists()
    named = ("ingest.sources[0]", f"no file or folder {finished.data}", "Correct the path")
    assert [text for text in named if text not in new.stderr] == []


def test_truncated_zst(finished):
    content = finished.data.read_bytes()
    packed = finished.folder / "data.jsonl.zst"
    subprocess.run(["zstd", "-qf", finished.data, "-o", packed], check=True)
    cut = packed.read_bytes()[: packed.stat().st_size // 2]
    packed.write_bytes(cut)
    finished.configure(source=packed.name)
    named = (packed, f"at byte {len(cut)}", "it was cut", "copy the file again")
    before = data_digests(finished.work)
    refusal = finished.run()
    assert refusal.returncode == NOT_STARTED
    assert "ingest: source 0 content" in refusal.stderr and "Nothing was touched" in refusal.stderr
    failure = finished.run("--accept-changes")
    assert failure.returncode == FAILED
    assert [text for text in named if str(text) not in failure.stderr] == []
    # Rows that cannot be ingested again leave the old ones where they are.
    assert data_digests(finished.work) == before
    elsewhere = finished.run("--work", finished.folder / "other")
    assert elsewhere.returncode == NOT_STARTED
    assert [text for text in named if str(text) not in elsewhere.stderr] == []
    finished.data.write_bytes(content)
    finished.configure()
    again = finished.run("--accept-changes")
    assert again.returncode == COMPLETE, again.stderr
    assert data_digests(finished.work) == before


# --- Folders without permission --------------------------------------------------------------------------------------


@pytest.fixture
def unprivileged():
    """(folder that anyone may pass through, options of a process that has no more rights than anyone)."""
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT else {}
    try:
        version = draftmill("version", **options)
    except OSError as error:
        pytest.skip(f"{BINARY} cannot be run as another user: {error}")
    if version.returncode != COMPLETE:
        pytest.skip(f"{BINARY} does not run as another user: {version.stderr}")
    with tempfile.TemporaryDirectory(prefix="draftmill-bad-input-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder, options
        for locked in folder.rglob("locked"):
            locked.chmod(0o755)


def test_source_folder_without_permission(unprivileged, undisturbed):
    folder, options = unprivileged
    shutil.copytree(undisturbed.folder, folder / "run")
    for path in [folder / "run", *(folder / "run").rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    place = Place(folder / "run", make_byte_model(folder / "model"))
    locked = place.folder / "locked"
    locked.mkdir()
    locked.chmod(0)
    place.configure(source="locked")
    refused(place, f"list {locked}: Permission denied", "Give the user", **options)


def test_work_folder_without_permission(unprivileged):
    folder, options = unprivileged
    place = Place(folder / "run", make_byte_model(folder / "model"))
    place.write(good_lines())
    locked = folder / "locked"
    locked.mkdir()
    locked.chmod(0)
    outcome = place.run("--work", locked, **options)
    assert outcome.returncode == NOT_STARTED, outcome.stderr
    assert str(locked) in outcome.stderr
    assert "Permission denied" in outcome.stderr and "Give the user" in outcome.stderr
    locked.chmod(0o755)
    assert list(locked.iterdir()) == []


# --- Model folders that are not what they seem -----------------------------------------------------------------------


def change_weights(place, change):
    """Rewrites model.safetensors: `change(header, tensor bytes)` alters the header and returns the bytes."""
    path = place.model / "model.safetensors"
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    tensors = change(header, content[8 + length :])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + tensors)
    return path


def test_safetensors_header_of_2_to_the_60_bytes(finished):
    path = finished.model / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + path.read_bytes()[8:])
    refused(finished, path, f"its length is given as {2**60} bytes", "fetch it again")


def test_weights_file_cut_short(finished):
    path = finished.model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    refused(finished, path, "cut short", "fetch it again")


def test_missing_tensor(finished):
    name = "model.layers.6.mlp.down_proj.weight"

    def take_out(header, tensors):
        begin, end = header.pop(name)["data_offsets"]
        for entry in header.values():
            if entry.get("data_offsets", [0])[0] >= end:
                entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
        return tensors[:begin] + tensors[end:]

    change_weights(finished, take_out)
    refused(finished, finished.model, "missing (1)", name, "Nothing was loaded", "Check that config.json")


def test_surplus_tensor(finished):
    name = "model.layers.3.mlp.mystery.weight"

    def add(header, tensors):
        header[name] = {"dtype": "F32", "shape": [4], "data_offsets": [len(tensors), len(tensors) + 16]}
        return tensors + bytes(16)

    change_weights(finished, add)
    refused(finished, finished.model, "surplus (1)", f"{name} (model.safetensors)", "Check that config.json")


def test_config_of_another_architecture(finished):
    path = finished.model / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.update(architectures=["WhisperForConditionalGeneration"], model_type="whisper")
    path.write_text(json.dumps(config), encoding="utf-8")
    refused(finished, path, "WhisperForConditionalGeneration", "LlamaForCausalLM", "Nothing was loaded", "model.path")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_model_folder_without_a_file(finished, name):
    (finished.model / name).unlink()
    refused(finished, finished.model, name, "model.path")


def test_missing_model_folder(finished):
    shutil.rmtree(finished.model)
    refused(finished, f"no folder {finished.model}", "model.path")


def test_engine_whose_libraries_do_not_load(tmp_path, model, undisturbed):
    """Said before anything is started, and no hindrance where no state is to be made."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "libdraftmill_products.so").write_text("not a library", encoding="utf-8")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    place = Place(tmp_path / "run", model)
    place.write(good_lines())
    outcome = place.run(env=environment)
    assert outcome.returncode == NOT_STARTED, outcome.stderr
    assert "libdraftmill_products.so cannot be loaded" in outcome.stderr
    assert not place.work.exists()
    assert place.run("--until", "vocab_map", env=environment).returncode == COMPLETE
    assert undisturbed.run(env=environment).returncode == COMPLETE


# --- state.db --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "status"])
def test_state_of_a_newer_version(finished, command):
    path = finished.work / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as state:
        state.execute("PRAGMA user_version = 999")
    before = all_digests(finished.work)
    outcome = draftmill(command, finished.pipeline)
    assert outcome.returncode == NOT_STARTED, outcome.stderr
    assert f"{path} was written by a newer draftmill" in outcome.stderr
    assert "version 999" in outcome.stderr and "Use the newer program" in outcome.stderr
    assert all_digests(finished.work) == before


@pytest.mark.parametrize("command", ["run", "status"])
def test_state_that_is_not_sqlite(finished, command):
    path = finished.work / "state.db"
    path.write_bytes(b"a note that somebody left here\n" * 300)
    before = all_digests(finished.work)
    outcome = draftmill(command, finished.pipeline)
    assert outcome.returncode == NOT_STARTED, outcome.stderr
    assert f"{path} is no SQLite database" in outcome.stderr
    assert "It was left as it is. Move it away" in outcome.stderr
    assert all_digests(finished.work) == before


def test_state_moved_away_is_made_again_from_what_is_there(finished):
    """The next step that the message of a foreign state.db names."""
    before = data_digests(finished.work)
    shards = {path: path.stat().st_ino for path in (finished.work / "shards").rglob("*.safetensors")}
    (finished.work / "state.db").rename(finished.folder / "moved.db")
    again = finished.run()
    assert again.returncode == COMPLETE, again.stderr
    assert data_digests(finished.work) == before
    assert {path: path.stat().st_ino for path in shards} == shards


# --- The world around a run ------------------------------------------------------------------------------------------


def stop_at(place, name):
    """Starts a run and stops the process (SIGSTOP) once `name` stands in its work folder."""
    process = place.start()
    path = place.work / name
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(POLL_SECONDS)
    process.send_signal(signal.SIGSTOP)
    return process


def go_on(process):
    """Lets a stopped run end. Returns (exit status, stderr)."""
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_run_that_moved_with_its_sources_is_up_to_date(finished):
    before = digests(finished.work)
    again = finished.run()
    assert again.returncode == COMPLETE, again.stderr
    assert again.stdout.startswith("all is up to date")
    assert digests(finished.work) == before


def test_two_runs_at_once(tmp_path, model, undisturbed):
    place = Place(tmp_path / "run", model)
    place.write(good_lines())
    first = stop_at(place, "run.json")
    second = place.run()
    status, errors = go_on(first)
    assert second.returncode == NOT_STARTED
    assert f"another run works in {place.work}: process {first.pid}" in second.stderr
    assert "draftmill stop" in second.stderr
    assert status == COMPLETE, errors
    assert data_digests(place.work) == data_digests(undisturbed.work)
    assert (place.work / "manifest.json").is_file()


@pytest.fixture
def small_disk(tmp_path):
    """A folder that is a file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    if not IS_ROOT or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """Takes all space; removing the file that is returned gives it back."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    return path


@pytest.mark.parametrize("moment", ["run.json", "ingested/index.json", "corpus/chunk-000000.safetensors"])
def test_full_disk(small_disk, model, undisturbed, moment):
    place = Place(small_disk / "run", model)
    place.write(good_lines())
    process = stop_at(place, moment)
    filler = fill(small_disk)
    published = digests(place.work)
    status, errors = go_on(process)
    assert status == RUN_AGAIN, errors
    message = errors[errors.index("draftmill: ") :]
    assert "No space left on device" in message or "disk is full" in message or "are free on the disk" in message
    assert str(place.work) in message.splitlines()[0]
    assert f"free space on the disk of {place.work}, then run the same command again to continue" in message
    assert digests(place.work).items() >= published.items()
    filler.unlink()
    again = place.run()
    assert again.returncode == COMPLETE, again.stderr
    assert data_digests(place.work) == data_digests(undisturbed.work)
    assert (place.work / "manifest.json").is_file()


def test_disk_too_small_for_the_states(small_disk, model):
    place = Place(small_disk / "run", model)
    place.write([json.dumps(conversation(f"{i} " + "x" * 4000, "y")).encode() for i in range(80)])
    outcome = place.run()
    assert outcome.returncode == NOT_STARTED, outcome.stderr
    assert str(place.work) in outcome.stderr
    assert "Nothing was started. Free space" in outcome.stderr
    assert digests(place.work) == {}
