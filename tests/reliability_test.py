"""What docs/reliability.md promises, tried on whole runs of the program with the example engine.

DRAFTMILL_THOROUGH=1 tries as often as the document says; otherwise a part of it, in seconds.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from small_run import COMPLETE, ROOT, SmallRun, conversation, difference

BINARY = Path(os.environ.get("DRAFTMILL_EXAMPLE", ROOT / "build" / "draftmill_example"))
THOROUGH = os.environ.get("DRAFTMILL_THOROUGH") == "1"
pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
STOPPED = 75
NOT_STARTED = 2


def times(fast, thorough):
    return thorough if THOROUGH else fast


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is complete, with some rows in quarantine; the tests work on copies of it."""
    lines = [conversation(number) for number in range(80)]
    lines[3:3] = ["{broken", '{"messages": []}']
    run = SmallRun(tmp_path_factory.mktemp("finished"), BINARY, lines)
    assert run.run() == 3, run.last_words()
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run that a test may harm."""
    return finished.copy(tmp_path / "copy")


def flip(path, generator):
    """Flips one bit and returns how to flip it back."""
    content = path.read_bytes()
    place, bit = generator.randrange(len(content)), 1 << generator.randrange(8)

    def write():
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(bytes([content[place] ^ bit]))

    def restore():
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(content[place : place + 1])

    write()
    return f"byte {place} ^ {bit}", restore


def verify(run, *arguments):
    command = [run.binary, "verify", run.pipeline, "--json", *arguments]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return result.returncode, json.loads(result.stdout) if result.stdout else {}, result.stderr


def test_a_check_looks_at_every_file_once(run):
    files = [*run.published(), "run.json", "pipeline.yaml"]
    for arguments in ((), ("--deep",)):
        _, report, progress = verify(run, *arguments)
        assert report["bytes"] == sum((run.work / name).stat().st_size for name in files)
        done, total = re.findall(r"verify: ([\d,]+) of ([\d,]+) bytes", progress)[-1]
        assert done == total


def test_every_flipped_bit_is_found(run):
    generator = random.Random(7)
    files = [*run.published(), "run.json", "pipeline.yaml"]
    assert verify(run, "--deep")[0] == 0
    for _ in range(times(12, 1000)):
        name = generator.choice(files)
        what, restore = flip(run.work / name, generator)
        status, report, _ = verify(run, "--deep")
        assert status == 1 and any(fault["file"] in (name, Path(name).parts[0]) for fault in report["faults"]), f"{name}: {what}"
        restore()
    assert verify(run, "--deep")[0] == 0


def test_damage_is_repaired_to_the_same_bytes(run):
    generator = random.Random(8)
    expected = run.published()
    for _ in range(times(3, 40)):
        files = [*generator.sample([*expected, "run.json"], 8), "final_norm.safetensors"]
        for name in dict.fromkeys(files):
            flip(run.work / name, generator)
        status, report, _ = verify(run, "--repair")
        assert status == 1 and len(report["faults"]) >= 1
        assert run.run() == 3, f"{files}: {run.last_words()}"
        assert difference(expected, run.published()) == [], files
        assert verify(run, "--deep")[0] == 0, files


def test_rows_whose_sources_are_gone_are_named_and_not_marked(run):
    generator = random.Random(9)
    flip(run.work / "ingested" / "chunk-000001.jsonl.zst", generator)
    (run.folder / "rows.jsonl").unlink()
    status, report, message = verify(run, "--repair")
    assert status == 1
    assert [fault["file"] for fault in report["faults"] if "no_repair" in fault] == ["ingested/chunk-000001.jsonl.zst"]
    assert "cannot be made again" in message and "rows.jsonl" in message
    # What was made of the rows goes on being good.
    assert run.run() == 3, run.last_words()


def end_behind_a_shard(run, how):
    """Runs, and signals when a further shard is published. Returns how the run ended."""
    published = len(list(run.work.glob("shards/*/*.safetensors")))
    process = run.start()
    while process.poll() is None and len(list(run.work.glob("shards/*/*.safetensors"))) == published:
        time.sleep(0.001)
    process.send_signal(how)
    return process.wait()


def kill_between_shards(run):
    """Runs from nothing, stops, goes on and is killed: most of the database is in its file, the rest in the log."""
    for _ in range(20):
        shutil.rmtree(run.work)
        if end_behind_a_shard(run, signal.SIGTERM) == STOPPED and end_behind_a_shard(run, signal.SIGKILL) == -signal.SIGKILL:
            return
    pytest.fail("each of 20 runs was complete before it could be killed")


# After a kill the database has a log beside it, and the next start decides whether to look at every page.
@pytest.mark.parametrize("killed", [False, True])
def test_a_flipped_bit_of_the_database_is_found_or_harmless(run, killed):
    generator = random.Random(10)
    expected = run.published()
    if killed:
        kill_between_shards(run)
        assert (run.work / "state.db-wal").exists()
    kept = run.folder / "kept"
    shutil.copytree(run.work, kept)
    refused = 0
    for _ in range(times(5, 200)):
        name = generator.choice(["state.db", "state.db-wal"]) if killed else "state.db"
        what = f"{name}: {flip(run.work / name, generator)[0]}"
        for command in ("status", "verify", "run"):
            status = run.run(command=command)
            assert 0 <= status < 128, f"{what}: {command} ended with {status}: {run.last_words()}"
            refused += command == "run" and status not in COMPLETE
        # Whatever it did, no published file is another one; at most something is not there yet.
        changed = [name for name, digest in run.published().items() if expected.get(name) != digest]
        assert changed == [], what
        shutil.rmtree(run.work)
        shutil.copytree(kept, run.work)
    assert refused > 0 or not THOROUGH


def test_a_damaged_database_is_named(run):
    content = bytearray((run.work / "state.db").read_bytes())
    content[1000:9000] = bytes(8000)
    (run.work / "state.db").write_bytes(content)
    for command in ("status", "run"):
        assert run.run(command=command) == NOT_STARTED, run.last_words()
        assert "state.db" in run.words() and "damaged" in run.words() and "rebuild" in run.words()
    assert run.run("rebuild", command="state") == 0, run.last_words()
    expected = run.published()
    assert run.run() == 3, run.last_words()
    assert difference(expected, run.published()) == []


def test_of_two_runs_exactly_one_runs(tmp_path):
    # Enough rows that the first of them is still at work when the second has come so far, also on a busy machine.
    lines = [conversation(number) for number in range(2000)]
    run = SmallRun(tmp_path, BINARY, lines)
    for number in range(times(2, 200)):
        shutil.rmtree(run.work, ignore_errors=True)
        command = [BINARY, "run", run.pipeline]
        pair = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        messages = [process.communicate(timeout=600)[1] for process in pair]
        assert sorted(process.returncode for process in pair) == [NOT_STARTED, 3], (number, messages)
        loser, winner = sorted(pair, key=lambda process: process.returncode != NOT_STARTED)
        named = re.search(r"another run works in .*: process (\d+) on \S+, since .* UTC", messages[pair.index(loser)])
        assert named and int(named.group(1)) == winner.pid, messages


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a small file system in memory, where that is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = []

    def mount(size):
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=False, capture_output=True)
        if result.returncode != 0:
            pytest.skip("no file system may be mounted here")
        mounted.append(place)
        return place

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)


def fill(place, left):
    """A file that leaves so many bytes free."""
    ballast = place / "ballast"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - left))
    return ballast


def test_a_full_disk_harms_nothing(finished, small_disk, tmp_path):
    expected = finished.published()
    used = sum(path.stat().st_size for path in finished.work.rglob("*") if path.is_file())
    place = small_disk(4 * used)
    lines = (finished.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    run = SmallRun(place / "run", BINARY, lines, log=tmp_path / "last.log")
    levels = times(10, 50)
    ended = {}
    for level in range(levels):
        shutil.rmtree(run.work, ignore_errors=True)
        ballast = fill(place, int(1.3 * used * level / levels))
        status = run.run("--until", "vocab_map") if level % 3 == 0 else run.run()
        words = run.words()
        assert status in (*COMPLETE, STOPPED, NOT_STARTED), f"{level}: {status}: {words}"
        assert status in COMPLETE or re.search("(?i)free space", words), words
        ended[status] = ended.get(status, 0) + 1
        ballast.unlink()
        assert run.run() == 3, f"{level}: {run.last_words()}"
        assert difference(expected, run.published()) == [], level
    assert ended.get(STOPPED, 0) > 0 and ended.get(NOT_STARTED, 0) > 0, ended


def test_space_is_looked_for_where_the_states_lie(finished, small_disk, tmp_path):
    """shards/ as a link to another disk: the forecast and the advice are about that one."""
    place = small_disk("1M")
    lines = [conversation(number) for number in range(400)]
    run = SmallRun(tmp_path / "run", BINARY, lines)
    run.work.mkdir()
    (place / "shards").mkdir()
    (run.work / "shards").symlink_to(place / "shards")
    assert run.run() == NOT_STARTED, run.last_words()
    assert f"on the disk of {run.work / 'shards'} " in run.last_words()
    plan = subprocess.run([BINARY, "plan", run.pipeline, "--json"], check=True, capture_output=True, text=True)
    assert json.loads(plan.stdout)["disk"]["holds_the_states"] is False
    subprocess.run(["mount", "-o", "remount,size=64M", place], check=True)
    assert run.run() in COMPLETE, run.last_words()
    assert (run.work / "shards").is_symlink()


def test_a_run_pauses_for_space_and_goes_on(finished, small_disk):
    place = small_disk("64M")
    lines = (finished.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    run = SmallRun(place / "run", BINARY, lines, min_free_disk="8MiB", disk_wait="60s")
    ballast = fill(place, 4 << 20)
    process = run.start()
    while "paused" not in run.words():
        assert process.poll() is None, run.last_words()
        time.sleep(0.05)
    ballast.unlink()
    assert process.wait(timeout=60) == 3, run.last_words()
    assert "space is back" in run.words()
    assert difference(finished.published(), run.published()) == []


@pytest.mark.parametrize("where", ["corpus", "state"])
def test_every_disk_that_a_run_writes_to_is_watched(finished, small_disk, tmp_path, where):
    """corpus/ or state.db on another disk than the work folder: a run pauses for space there, too."""
    place = small_disk("64M")
    lines = (finished.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    run = SmallRun(tmp_path / "run", BINARY, lines, min_free_disk="8MiB", disk_wait="60s")
    arguments = ["--state-dir", place / "state"] if where == "state" else []
    run.work.mkdir()
    (place / where).mkdir()
    if where == "corpus":
        (run.work / "corpus").symlink_to(place / "corpus")
    ballast = fill(place, 4 << 20)
    process = run.start(*arguments)
    while "paused" not in run.words():
        assert process.poll() is None, run.last_words()
        time.sleep(0.05)
    ballast.unlink()
    assert process.wait(timeout=60) == 3, run.last_words()
    assert "space is back" in run.words() and str(place if where == "state" else run.work / "corpus") in run.words()
    assert difference(finished.published(), run.published()) == []


def test_a_detached_run_is_left_to_itself(finished, tmp_path):
    lines = [conversation(number) for number in range(400)]
    run = SmallRun(tmp_path, BINARY, lines)
    assert run.run("--detach") == 0, run.last_words()
    assert "goes on as process" in run.words()
    assert run.run("--follow", command="logs") == 0
    assert "draftmill" in run.words() or "quarantine" in run.words(), run.last_words()
    assert run.run(command="status") == 3
    # One that cannot begin says so at once, and leaves nothing behind.
    (tmp_path / "model" / "model.safetensors").unlink()
    run.configure(work="other")
    assert run.run("--detach") == NOT_STARTED
    assert "model" in run.words()
    assert not run.work.exists()


def test_arguments_of_quarantine_are_checked(run):
    for arguments in (["show"], ["show", "0"], ["list", "3"], ["list", "--stage", "nothing"], ["export", "--after", "1"]):
        assert run.run(*arguments, command="quarantine") == NOT_STARTED, arguments
    assert run.run("list", "--stage", "ingest", command="quarantine") == 0


MESSAGES = {
    "broken_json": "{broken",
    "no_object": "7",
    "a_list": "[1]",
    "text": '"text"',
    "nothing_known": '{"text": "prose"}',
    "no_messages": '{"messages": []}',
    "messages_are_text": '{"messages": "hello"}',
    "a_message_is_text": '{"messages": ["hello"]}',
    "unknown_role": '{"messages": [{"role": "judge", "content": "guilty"}]}',
    "no_role": '{"messages": [{"content": "hello"}]}',
    "role_is_a_number": '{"messages": [{"role": 1, "content": "hello"}]}',
    "content_is_a_number": '{"messages": [{"role": "user", "content": 1}, {"role": "assistant", "content": "a"}]}',
    "no_answer": '{"messages": [{"role": "user", "content": "no answer to this"}]}',
    "an_image": '{"messages": [{"role": "user", "content": [{"type": "image", "url": "x"}]}, {"role": "assistant", "content": "a"}]}',
    "two_values": '{"messages": []} {"messages": []}',
    "cut": '{"messages": [{"role": "user", "content": "cut',
    "a_key_twice": '{"messages": [], "messages": []}',
    "lone_surrogate": '{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "a"}]}',
    "too_deep": "[" * 5000 + "]" * 5000,
    "a_weight": '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "loss_weight": 0.5}]}',
}


def test_bad_rows_go_to_quarantine_and_the_rest_comes_through(tmp_path):
    rows = times(2000, 100_000)
    lines, bad = [], {}
    for number in range(rows):
        if number % 100 == 50:
            kind = sorted(MESSAGES)[number // 100 % len(MESSAGES)]
            bad[number + 1] = kind
            lines.append(MESSAGES[kind])
        else:
            lines.append(conversation(number))
    run = SmallRun(tmp_path, BINARY, lines, chunk_rows=4096, shard_bytes="64MiB")
    text = (tmp_path / "pipeline.yaml").read_text(encoding="utf-8")
    (tmp_path / "pipeline.yaml").write_text(text.replace("shuffle: {seed: 3}", "deduplicate: false"), encoding="utf-8")
    report = subprocess.run([BINARY, "run", run.pipeline, "--json"], check=False, capture_output=True, text=True)
    assert report.returncode == 3, report.stderr[-2000:]
    facts = json.loads(report.stdout)
    assert facts["rows"]["read"] == rows
    assert facts["rows"]["kept"] + facts["rows"]["rejected"] == rows
    assert facts["rows"]["rejected"] + facts["rows_without_sample"] == len(bad) == rows // 100
    assert facts["samples"] == rows - len(bad)
    export = subprocess.run([BINARY, "quarantine", run.pipeline, "export"], check=True, capture_output=True, text=True)
    failures = [json.loads(line) for line in export.stdout.splitlines()]
    ours = {failure["line"]: failure for failure in failures if failure["stage"] in ("ingest", "tokenize")}
    assert sorted(ours) == sorted(bad)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line.encode()) + 1)
    for line, failure in ours.items():
        assert failure["reason"] and failure["file"] == "rows.jsonl" and failure["byte_offset"] == offsets[line - 1], failure

    # Mended, they are a further source.
    exported = subprocess.run([BINARY, "quarantine", run.pipeline, "export", "--rows", "--stage", "ingest"], check=True, capture_output=True, text=True)
    given = exported.stdout.splitlines()
    assert set(given) <= set(MESSAGES.values()) and len(given) == facts["rows"]["rejected"]
    mended = [conversation(f"mended {number}") for number, _ in enumerate(given)]
    (tmp_path / "mended.jsonl").write_text("".join(line + "\n" for line in mended), encoding="utf-8")
    text = run.pipeline.read_text(encoding="utf-8").replace("{path: rows.jsonl}", "{path: rows.jsonl}, {path: mended.jsonl}")
    run.pipeline.write_text(text, encoding="utf-8")
    report = subprocess.run([BINARY, "run", run.pipeline, "--accept-changes", "--json"], check=False, capture_output=True, text=True)
    assert json.loads(report.stdout)["samples"] == rows - len(bad) + len(given), report.stderr[-2000:]
