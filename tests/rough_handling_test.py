"""A work folder as people and machines treat it: files swapped, linked, forbidden, edited; terminals that close.

DRAFTMILL_THOROUGH=1 tries every edit of state.db; otherwise every third.
"""

import contextlib
import os
import pty
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from small_run import COMPLETE, ROOT, SmallRun, conversation, difference

BINARY = Path(os.environ.get("DRAFTMILL_EXAMPLE", ROOT / "build" / "draftmill_example"))
THOROUGH = os.environ.get("DRAFTMILL_THOROUGH") == "1"
pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
STOPPED = 75
NOT_STARTED = 2
FAULTY = 1
QUARANTINED = 3
NOBODY = 65534
CROWDED = 61234  # a user of nothing else, whose processes are counted
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as another user")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = SmallRun(tmp_path_factory.mktemp("finished"), BINARY, [*(conversation(number) for number in range(60)), "{broken"])
    assert run.run() == QUARANTINED, run.last_words()
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run that a test may harm."""
    return finished.copy(tmp_path / "copy")


def mend(run, expected):
    """verify finds what is wrong, --repair marks it, and a run makes the same bytes again."""
    assert run.run(command="verify") == FAULTY, run.last_words()
    assert run.run("--repair", command="verify") == FAULTY
    assert "is marked as work" in run.words()
    assert run.run() == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []
    assert run.run("--deep", command="verify") == 0, run.last_words()


def shards(run):
    return sorted((run.work / "shards").rglob("*.safetensors"))


def test_a_deleted_shard_is_named_and_made_again(run):
    expected = run.published()
    shards(run)[1].unlink()
    assert run.run() == NOT_STARTED
    assert shards(run)[1].parent.name in run.words() and "verify --repair" in run.words()
    mend(run, expected)


@pytest.mark.parametrize("name", ["two words", "it's", "two\nlines", "\u00fc\u65e5", "$HOME;#&"])
def test_what_a_message_says_to_do_next_can_be_given_to_a_shell(finished, tmp_path, name):
    run = finished.copy(tmp_path / name)
    expected = run.published()
    for command, found in (("run", NOT_STARTED), ("verify", FAULTY)):
        shards(run)[1].unlink()
        assert run.run(command=command) == found
        advice = re.search(r"`draftmill (verify [^`]*)`", run.last_words(), re.DOTALL).group(1)
        repaired = subprocess.run(f"{BINARY} {advice}", shell=True, check=False, capture_output=True, text=True)
        assert repaired.returncode == FAULTY, repaired.stderr
    advice = re.search(r"`draftmill (run [^`]*)`", repaired.stderr, re.DOTALL).group(1)
    again = subprocess.run(f"{BINARY} {advice}", shell=True, check=False, capture_output=True, text=True)
    assert again.returncode == QUARANTINED, again.stderr
    assert difference(expected, run.published()) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_run_without_standard_streams_writes_into_no_file_of_its_own(finished, tmp_path, closed):
    run = finished.copy(tmp_path / "copy")
    expected = run.published()
    shutil.rmtree(run.work)
    status = subprocess.run(f"{BINARY} run {run.pipeline} {closed}", shell=True, check=False, capture_output=True).returncode
    assert status == QUARANTINED
    assert difference(expected, run.published()) == []
    host, boot, process, since = (run.work / "run.lock").read_text(encoding="utf-8").splitlines()
    assert process.isdigit() and since.isdigit(), (host, boot)
    assert run.run("--deep", command="verify") == 0, run.last_words()


def test_a_file_above_the_users_limit_ends_a_run_with_words(finished, tmp_path):
    run = finished.copy(tmp_path / "copy")
    expected = run.published()
    shutil.rmtree(run.work)
    for kibibytes in (8, 64, 128, 200):
        limited = subprocess.run(f"ulimit -f {kibibytes}; {BINARY} run {run.pipeline}", shell=True, check=False, capture_output=True,
                                 text=True, executable="/bin/bash")
        assert limited.returncode in (FAULTY, NOT_STARTED), f"{kibibytes}: {limited.returncode}: {limited.stderr}"
        assert "draftmill: " in limited.stderr and str(run.work) in limited.stderr, limited.stderr
    assert run.run() == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []


def test_a_removed_lock_lets_no_second_run_in(tmp_path):
    run = SmallRun(tmp_path, BINARY, [conversation(number) for number in range(2000)])
    first = run.start()
    while not (run.work / "run.lock").exists() or not (run.work / "ingested").exists():
        assert first.poll() is None, run.last_words()
        time.sleep(0.01)
    (run.work / "run.lock").unlink()
    second = subprocess.run([BINARY, "run", run.pipeline], check=False, capture_output=True, text=True)
    assert first.poll() is None, "the first run was over too soon to tell"
    assert second.returncode == NOT_STARTED and "another run works in" in second.stderr
    assert first.wait(timeout=120) in COMPLETE, run.last_words()


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A finished run that takes long enough for something to happen while it is at work."""
    run = SmallRun(tmp_path_factory.mktemp("longer"), BINARY, [conversation(number) for number in range(600)])
    assert run.run() == QUARANTINED, run.last_words()
    return run


# A folder, or state.db, that somebody removes under a run; and what was published first when that happens.
@pytest.mark.parametrize(
    ("removed", "moment"),
    [
        ("ingested.partial", "ingested.partial/ingested/spill"),
        ("ingested", "ingested/index.json"),
        ("ingested", "shards/000001"),
        ("corpus", "shards/000001"),
        ("shards", "shards/000002"),
        ("state.db", "corpus"),
    ],
)
def test_what_is_removed_under_a_run_is_missed_and_made_again(longer, tmp_path, removed, moment):
    run = longer.copy(tmp_path / "copy")
    expected = run.published()
    shutil.rmtree(run.work)
    process = run.start()
    while not (run.work / moment).exists():
        assert process.poll() is None, f"over before {moment} was there: {run.last_words()}"
    gone = tmp_path / "gone"
    (run.work / removed).rename(gone)
    # What was removed may be made anew by the run itself: nothing else may come out of it.
    assert process.wait(timeout=120) in (QUARANTINED, FAULTY, NOT_STARTED), run.last_words()
    if run.run(command="verify") != 0:
        repair = ("rebuild", "state") if "rebuild" in run.words() or "state.db" in run.words() else ("--repair", "verify")
        run.run(repair[0], command=repair[1])
    assert run.run() == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []
    assert run.run("--deep", command="verify") == 0, run.last_words()


def test_shards_that_changed_places_are_found(run):
    expected = run.published()
    one, other = shards(run)[0], shards(run)[-1]
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    mend(run, expected)


# Values that flipped, or were edited by hand, in a state.db that SQLite finds whole.
EDITS = [
    "UPDATE shards SET state = 'planned', bytes = 0, digest = '' WHERE chunk = 1",
    "UPDATE shards SET file = '../../rows.jsonl' WHERE chunk = 1",
    "UPDATE shards SET bytes = 9223372036854775807 WHERE chunk = 1",
    "UPDATE shards SET digest = '' WHERE chunk = 1",
    "DELETE FROM shards WHERE chunk = 1",
    "DELETE FROM batches WHERE chunk = 1",
    "UPDATE batches SET state = 'planned' WHERE chunk = 1",
    "UPDATE batches SET tokens = -1",
    "UPDATE chunks SET shards = 0",
    "UPDATE chunks SET published_shards = 0 WHERE chunk = 1",
    "UPDATE chunks SET first_sample = first_sample + 1 WHERE chunk = 1",
    "UPDATE chunks SET corpus_digest = '' WHERE chunk = 1",
    "UPDATE chunks SET chunk = chunk + 1000 WHERE chunk = 2",
    "DELETE FROM chunks WHERE chunk = 1",
]
SAMPLE_EDITS = [
    "UPDATE samples SET tokens = tokens + 1 WHERE chunk = 1",
    "UPDATE samples SET sample_id = sample_id + 100000 WHERE chunk = 1",
    "DELETE FROM samples WHERE chunk = 1",
    "DELETE FROM conversations WHERE chunk = 1",
    "UPDATE conversations SET sample_id = sample_id + 100000 WHERE chunk = 1",
]


@pytest.mark.parametrize("edit", (EDITS + SAMPLE_EDITS)[:: 1 if THOROUGH else 3])
def test_a_state_that_contradicts_itself_is_named_and_made_again(run, edit):
    expected = run.published()
    with contextlib.closing(sqlite3.connect(run.work / "state.db")) as state:
        assert state.execute(edit).rowcount > 0
        state.commit()
    if edit in EDITS:
        assert run.run() == NOT_STARTED, run.last_words()
        assert "contradicts itself" in run.last_words() and "rebuild" in run.last_words()
    # Nothing is marked by such a database, and nothing is lost by saying so.
    for repair in ((), ("--repair",)):
        assert run.run(*repair, command="verify") == FAULTY, run.last_words()
        assert "contradicts itself" in run.last_words() and "rebuild" in run.last_words()
    assert difference(expected, run.published()) == []
    assert run.run("rebuild", command="state") == 0, run.last_words()
    assert (run.work / "state.db.damaged").exists()
    assert run.run() == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []
    assert run.run("--deep", command="verify") == 0, run.last_words()


def test_a_state_on_a_disk_that_is_gone_is_named_by_every_command(finished, tmp_path):
    run = finished.copy(tmp_path / "copy")
    expected = run.published()
    local = tmp_path / "local"
    local.mkdir()
    shutil.move(run.work / "state.db", local / "state.db")
    (run.work / "state.db").symlink_to(local / "state.db")
    assert run.run() == QUARANTINED, run.last_words()
    shutil.rmtree(local)
    for command in (["status"], ["verify"], ["run"], ["state", "rebuild"]):
        assert run.run(*command[1:], command=command[0]) == NOT_STARTED, run.last_words()
        assert f"is a link to {local / 'state.db'}" in run.last_words()
    # Where the folder is there again, the database is made again in it.
    local.mkdir()
    assert run.run("rebuild", command="state") == 0, run.last_words()
    assert run.run() == QUARANTINED and (local / "state.db").exists(), run.last_words()
    assert difference(expected, run.published()) == []


def test_an_export_has_a_place_of_its_own(run):
    expected = run.published()
    # A folder among what the run publishes would be taken for a part of it.
    for place in (run.work / "corpus" / "mine", run.work / "shards" / "000001" / "mine", run.folder / "rows.jsonl"):
        assert run.run("jsonl", "--output", place, command="export") == NOT_STARTED, run.last_words()
        assert "Nothing was written" in run.last_words() and str(place) in run.last_words()
    assert difference(expected, run.published()) == []


def test_a_state_of_a_newer_program_is_not_rebuilt(run):
    with contextlib.closing(sqlite3.connect(run.work / "state.db")) as state:
        state.execute("PRAGMA user_version = 999")
    before = (run.work / "state.db").read_bytes()
    assert run.run("rebuild", command="state") == NOT_STARTED
    assert "newer draftmill" in run.last_words()
    assert (run.work / "state.db").read_bytes() == before and not (run.work / "state.db.damaged").exists()


# `why` names a stage or a sample: whatever a command looks for, it has not begun.
LOOKS = (["status"], ["verify"], ["plan"], ["why", "extract"], ["why", "3"], ["inspect"], ["inspect", "3"], ["quarantine", "list"])
LOOKS += (["quarantine", "export"], ["rerun", "tokenize"], ["run"])


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_a_state_that_cannot_be_used_is_no_failure_of_the_command(run, command):
    path = run.work / "state.db"
    content = bytearray(path.read_bytes())
    for damaged in (content[:1000] + bytes(8000) + content[9000:], b"a note that somebody left here" * 300):
        path.write_bytes(damaged)
        assert run.run(*command[1:], command=command[0]) == NOT_STARTED, run.last_words()
        assert "state.db" in run.last_words()


@pytest.mark.parametrize("content", [None, "", "{}", '{"format": "draftmill.manifest"}', "edited"])
def test_a_manifest_that_was_edited_is_found_and_written_anew_by_a_run(run, content):
    expected = run.published()
    manifest = run.work / "manifest.json"
    if content is None:
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text().replace("samples", "tokens") if content == "edited" else content, encoding="utf-8")
    assert run.run(command="verify") == FAULTY
    assert run.run() == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []
    assert run.run("--deep", command="verify") == 0, run.last_words()


def test_a_run_through_a_symbolic_link_is_the_same_run(run):
    expected = run.published()
    run.work.rename(run.folder / "real")
    run.work.symlink_to("real")
    (run.folder / "real" / "shards").rename(run.folder / "other-disk")
    (run.folder / "real" / "shards").symlink_to("../other-disk")
    for target in (run.pipeline, run.work, run.folder / "real"):
        assert subprocess.run([BINARY, "run", target], check=False, capture_output=True).returncode == QUARANTINED
    assert run.run("extract", command="rerun") == QUARANTINED, run.last_words()
    assert difference(expected, run.published()) == []


def test_a_copy_of_hard_links_never_changes_the_original(finished, tmp_path):
    """As `cp -al` and backup tools make them: two folders, one set of files."""
    run = finished.copy(tmp_path / "original")
    for change in range(90, 400, 15):
        shutil.rmtree(run.work)
        assert run.run(environment={"DRAFTMILL_EXAMPLE_FAULT": f"kill:{change}"}) == -signal.SIGKILL, "no shard was half-way"
        if list((run.work / "shards").rglob("*.partial")):
            break
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-al", run.folder, copy], check=True)
    # The database and its log are refused, each with the command that gives the copy its own.
    for _ in sorted((copy / "work").glob("state.db*")):
        linked = subprocess.run([BINARY, "run", copy / "pipeline.yaml"], check=False, capture_output=True, text=True)
        assert linked.returncode == NOT_STARTED and "hard links" in linked.stderr, linked.stderr
        subprocess.run(["sh", "-c", linked.stderr.split("`")[3]], check=True)
    # The original is finished first; the copy, under other parameters, must not touch what became published there.
    assert run.run() == QUARANTINED, run.last_words()
    before = run.published()
    assert difference(finished.published(), before) == []
    text = (copy / "pipeline.yaml").read_text(encoding="utf-8")
    (copy / "pipeline.yaml").unlink()
    (copy / "pipeline.yaml").write_text(text.replace("vocab_map:", "tokenize: {supervise_stop_token: false}\nvocab_map:"), encoding="utf-8")
    other = subprocess.run([BINARY, "run", copy / "pipeline.yaml", "--accept-changes"], check=False, capture_output=True, text=True)
    assert other.returncode == QUARANTINED, other.stderr
    assert difference(before, run.published()) == []
    assert run.run("--deep", command="verify") == 0, run.last_words()


@pytest.fixture
def shared_run(finished):
    """A copy in a folder that other users may look into."""
    folder = Path(tempfile.mkdtemp(prefix="draftmill-shared-"))
    folder.chmod(0o755)
    run = finished.copy(folder / "run")
    # The model's files may be links into a folder of our own.
    shutil.rmtree(run.folder / "model")
    shutil.copytree(finished.folder / "model", run.folder / "model")
    yield run
    shutil.rmtree(folder)


def as_nobody(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[])


@needs_root
def test_another_user_may_look_and_is_refused_to_write(shared_run):
    run = shared_run
    subprocess.run(["chmod", "-R", "go+rX", run.folder], check=True)
    before = run.published()
    for command in (["status"], ["verify"], ["verify", "--deep"], ["inspect"], ["quarantine", "list"], ["plan"]):
        looked = as_nobody(BINARY, command[0], run.pipeline, *command[1:])
        assert looked.returncode in COMPLETE, (command, looked.stderr)
    for command in (["run"], ["rerun", "extract"], ["verify", "--repair"]):
        refused = as_nobody(BINARY, command[0], run.pipeline, *command[1:])
        assert refused.returncode == NOT_STARTED and "Permission denied" in refused.stderr, (command, refused)
    assert run.published() == before


@needs_root
def test_a_file_that_may_not_be_read_is_not_taken_for_damaged(shared_run):
    run = shared_run
    expected = run.published()
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", run.folder], check=True)
    forbidden = [shards(run)[0], run.work / "corpus" / "chunk-000001.safetensors"]
    for path in forbidden:
        path.chmod(0)
    for option in ("--deep", "--repair"):
        found = as_nobody(BINARY, "verify", run.pipeline, option)
        assert found.returncode == FAULTY and "may not be read by this user" in found.stderr, found.stderr
        assert (run.work / "manifest.json").exists()
    for path in forbidden:
        path.chmod(0o644)
    assert as_nobody(BINARY, "run", run.pipeline).returncode == QUARANTINED
    assert difference(expected, run.published()) == []


@needs_root
def test_a_run_that_is_given_no_more_threads_ends_with_words(shared_run):
    run = shared_run
    expected = run.published()
    subprocess.run(["chown", "-R", f"{CROWDED}:{CROWDED}", run.folder], check=True)
    seen = set()
    for most in range(1, 16):
        shutil.rmtree(run.work, ignore_errors=True)
        command = [BINARY, "run", run.pipeline]
        limited = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            user=CROWDED,
            group=CROWDED,
            extra_groups=[],
            preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_NPROC, (most, most)),
        )
        assert limited.returncode in (QUARANTINED, NOT_STARTED, FAULTY), f"{most}: {limited}"
        assert limited.returncode == QUARANTINED or "gives no further thread" in limited.stderr, f"{most}: {limited}"
        seen.add(limited.returncode)
    assert seen >= {QUARANTINED, NOT_STARTED}
    assert difference(expected, run.published()) == []


def test_a_reader_that_goes_does_not_end_a_run(finished, tmp_path):
    run = finished.copy(tmp_path / "copy")
    shutil.rmtree(run.work)
    process = subprocess.Popen([BINARY, "run", run.pipeline], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(timeout=60) == QUARANTINED
    assert difference(finished.published(), run.published()) == []


def test_a_full_device_for_the_output_is_no_success(run):
    with open("/dev/full", "w", encoding="utf-8") as full:
        for command in (["quarantine", run.pipeline, "export"], ["status", run.pipeline, "--json"], ["version"]):
            result = subprocess.run([BINARY, *command], check=False, stdout=full, stderr=subprocess.PIPE, text=True)
            assert result.returncode != 0, command
        # A run is complete whether or not its report could be written.
        assert subprocess.run([BINARY, "run", run.pipeline], check=False, stdout=full, stderr=subprocess.PIPE).returncode == QUARANTINED


def start_in_terminal(command, folder):
    """The process, in a session of its own with a terminal; closing the returned descriptor hangs it up."""
    master, slave = pty.openpty()

    def take_terminal():
        os.close(os.open(os.ttyname(0), os.O_RDWR))

    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=take_terminal, cwd=folder)
    os.close(slave)
    return process, master


@pytest.mark.parametrize("outlives", [False, True])
def test_a_run_whose_terminal_closes_stops_or_goes_on_as_it_was_told(finished, tmp_path, outlives):
    lines = [conversation(number) for number in range(3000)]
    run = SmallRun(tmp_path, BINARY, lines)
    process, terminal = start_in_terminal((["nohup"] if outlives else []) + [BINARY, "run", run.pipeline], tmp_path)
    deadline = time.monotonic() + 30
    while not list((run.work / "shards").rglob("*.safetensors")) and time.monotonic() < deadline:
        os.set_blocking(terminal, False)
        with contextlib.suppress(OSError):  # nothing to read now, or under nohup nobody who writes
            os.read(terminal, 65536)
        time.sleep(0.01)
    assert process.poll() is None
    os.close(terminal)
    closed = time.monotonic()
    status = process.wait(timeout=120)
    if outlives:
        assert status == QUARANTINED
    else:
        assert status == STOPPED and time.monotonic() - closed < 10
    assert run.run() == QUARANTINED, run.last_words()
    assert run.run("--deep", command="verify") == 0, run.last_words()


# --- A folder that is no run's ---------------------------------------------------------------------------------------


@pytest.fixture
def beginning(tmp_path):
    """A run that has not begun, in the folder of its own pipeline file and rows."""
    return SmallRun(tmp_path / "one", BINARY, [conversation(number) for number in range(20)], log=tmp_path / "log", work=".")


@pytest.mark.parametrize(
    "name", ["corpus/mine.txt", "ingested/mine.jsonl", "vocab/a/mine.npy", "shards/mine", "manifest.json", "final_norm.safetensors"]
)
def test_files_of_somebody_else_are_not_taken_for_the_runs_own(beginning, name):
    path = beginning.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    before = sorted(beginning.folder.rglob("*"))
    for command in ("plan", "run"):
        assert beginning.run(command=command) == NOT_STARTED, beginning.last_words()
        assert f"belongs to no run, but holds {name.partition('/')[0]}," in beginning.words()
    assert path.read_text() == "mine"
    assert sorted(beginning.folder.rglob("*")) == before


def test_another_pipeline_file_is_not_replaced_by_the_runs_copy(beginning):
    other = beginning.folder / "pipeline.yaml"
    beginning.pipeline = beginning.folder / "mine.yaml"
    beginning.configure()
    other.write_text("# another\n")
    assert beginning.run() == NOT_STARTED
    assert "belongs to no run, but holds pipeline.yaml," in beginning.words()
    assert other.read_text() == "# another\n"


def test_data_pipeline_file_and_run_may_lie_in_one_folder(beginning):
    for name in ("corpus", "shards/lost+found"):  # as mount points and links of other disks are
        (beginning.folder / name).mkdir(parents=True)
    text = beginning.pipeline.read_text().replace("path: rows.jsonl", "path: .").replace("model: {path: model}", "model: {path: ../model}")
    for folder in ("model", "model-text"):
        (beginning.folder / folder).rename(beginning.folder.parent / folder)
    beginning.pipeline.write_text(text)
    for link in (beginning.folder.parent / "model").iterdir():
        if link.is_symlink():
            target = beginning.folder.parent / "model-text" / link.name
            link.unlink()
            link.symlink_to(target)
    assert beginning.run() in COMPLETE, beginning.last_words()
    first = beginning.published()
    assert beginning.run() in COMPLETE, beginning.last_words()
    assert beginning.published() == first
    assert beginning.pipeline.read_text() == text


@pytest.mark.parametrize(("place", "words"), [("rows.jsonl", "is a file"), ("model", "is the model's folder"), ("model/", "is the model's folder")])
def test_a_work_folder_that_cannot_be_one(beginning, place, words):
    before = sorted(beginning.folder.rglob("*"))
    beginning.configure(work=place)
    assert beginning.run() == NOT_STARTED
    assert words in beginning.words()
    assert sorted(beginning.folder.rglob("*")) == before
