#!/usr/bin/env python3
"""A run that is killed at any moment and started again publishes the same bytes as one that was left alone.

    tests/kill_and_resume.py [--kills 5] [--seed 7] [--binary build/draftmill] [--keep FOLDER]

24 of the demo's conversations go through the whole pipeline with the demo model: once undisturbed, once with 1, 2 and 4
threads, and once for every kill. The undisturbed run is watched, so that the files it makes are known in the order of
their appearance; a kill waits for a random file of a stage, then for a random moment, and sends SIGKILL. The stages take
turns, and so do the places of the weights (resident, streamed). The same command then continues, and the SHA-256 of every
published file is compared.

Prints one line a run. Exit: 0 all equal, 1 one differs (it is named), 77 the demo model or the program is absent.
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "smollm2-135m-instruct"
DEMO = ROOT / "configs" / "demo"
CONVERSATIONS = 24
POLL_SECONDS = 0.001
SKIPPED = 77
PUBLISHED_FOLDERS = ("ingested", "corpus", "vocab", "shards")

PIPELINE = """\
work: {work}
model: {{path: {model}}}
ingest: {{sources: [{{path: {data}}}], shuffle: {{seed: 7}}, chunk_rows: 4}}
tokenize: {{max_length: 96, too_long: truncate}}
vocab_map: {{size: 1024}}
extract: {{batch_tokens: 96, block_tokens: 192, weights: {weights}}}
write: {{shard_bytes: 1MiB}}
limits: {{threads: {threads}, min_free_disk: 0, memory: 1GiB}}
"""


class CrashTestFailed(Exception):
    """What was to be shown does not hold."""


def chosen_conversations():
    """24 rows, spread over the demo's two files, as messages."""
    rows = [json.loads(line)["messages"] for line in (DEMO / "chat.jsonl").read_text(encoding="utf-8").splitlines()]
    roles = {"system": "system", "human": "user", "gpt": "assistant"}
    for row in json.loads((DEMO / "sharegpt.json").read_text(encoding="utf-8")):
        rows.append([{"role": roles[turn["from"]], "content": turn["value"]} for turn in row["conversations"]])
    step = len(rows) // CONVERSATIONS
    return rows[::step][:CONVERSATIONS]


class Workplace:
    """A folder with the data, and one pipeline file and work folder per run."""

    def __init__(self, folder, binary):
        self.folder = folder
        self.binary = binary
        self.data = folder / "conversations.jsonl"
        lines = (json.dumps({"messages": messages}, ensure_ascii=False) for messages in chosen_conversations())
        self.data.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def pipeline(self, name, threads, weights="auto"):
        path = self.folder / f"{name}.yaml"
        path.write_text(PIPELINE.format(work=name, model=MODEL, data=self.data, threads=threads, weights=weights), encoding="utf-8")
        return path

    def work(self, name):
        return self.folder / name

    def start(self, pipeline):
        with open(pipeline.with_suffix(".log"), "ab") as log:  # both starts of a run write to it
            return subprocess.Popen([self.binary, "run", pipeline], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def finish(self, pipeline):
        status = self.start(pipeline).wait()
        if status != 0:
            tail = pipeline.with_suffix(".log").read_text(encoding="utf-8", errors="replace")[-2000:]
            raise CrashTestFailed(f"{pipeline.stem}: exit status {status}:\n{tail}")


def files_in(work):
    """Every file of the work folder, also unfinished ones, relative to it. Files may vanish while this looks."""
    found = []
    pending = [work]
    while pending:
        folder = pending.pop()
        try:
            entries = list(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if entry.is_dir():
                pending.append(entry)
            else:
                found.append(str(entry.relative_to(work)))
    return found


def stage_of(name):
    """The folder of a published file; everything else (state.db, run.json, logs) appears at the start."""
    top = name.split("/")[0]
    return top if top in PUBLISHED_FOLDERS else "start"


def watch(process, work):
    """Waits for the process and returns {stage: files in the order of their appearance}."""
    seen, stages = set(), {}
    while process.poll() is None:
        for name in sorted(files_in(work)):
            if name not in seen:
                seen.add(name)
                if name != "manifest.json":  # when it stands there, nothing is left to be killed
                    stages.setdefault(stage_of(name), []).append(name)
        time.sleep(POLL_SECONDS)
    return stages


def digests(work):
    names = [name for name in files_in(work) if stage_of(name) != "start" or name == "manifest.json"]
    return {name: hashlib.sha256((work / name).read_bytes()).hexdigest() for name in sorted(names)}


def compare(expected, actual, what):
    if expected == actual:
        return
    different = [name for name in sorted(expected.keys() | actual.keys()) if expected.get(name) != actual.get(name)]
    raise CrashTestFailed(f"{what}: {len(different)} published files differ from the undisturbed run: {different[:8]}")


def kill_at(process, work, trigger, delay_seconds):
    """Kills the process `delay_seconds` after the file appeared. False if it had ended before."""
    path = work / trigger
    while process.poll() is None and not path.exists():
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + delay_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    if process.poll() is not None:
        return False
    process.kill()
    process.wait()
    return True


def killed_run(place, name, stages, turn, generator, step_seconds):
    """One run that is killed in the stage whose turn it is and continued. Returns a description of the kill."""
    pipeline = place.pipeline(name, "auto", "streamed" if turn % 2 else "resident")
    names = list(stages)
    for attempt in range(20):
        stage = names[(turn + attempt // 5) % len(names)]
        trigger = generator.choice(stages[stage])
        process = place.start(pipeline)
        if kill_at(process, place.work(name), trigger, generator.uniform(0, step_seconds)):
            place.finish(pipeline)
            return f"{stage} ({trigger})"
        if process.returncode != 0:
            raise CrashTestFailed(f"{name}: exit status {process.returncode} before the kill")
        shutil.rmtree(place.work(name))  # it was faster than the kill: once more from the start
    raise CrashTestFailed(f"{name}: the run always ended before it could be killed")


def run_all(place, kills, seed):
    generator = random.Random(seed)
    started = time.monotonic()
    undisturbed = place.pipeline("undisturbed", "auto")
    process = place.start(undisturbed)
    stages = watch(process, place.work("undisturbed"))
    if process.returncode != 0:
        place.finish(undisturbed)
        raise CrashTestFailed(f"the undisturbed run ended with status {process.returncode}, and with 0 when run again")
    seconds = time.monotonic() - started
    expected = digests(place.work("undisturbed"))
    counts = ", ".join(f"{len(files)} {stage}" for stage, files in stages.items())
    print(f"undisturbed: {seconds:.1f} s, {len(expected)} published files; seen: {counts}", flush=True)
    # Between two files of the same stage at least one kill in the middle of the work should fall.
    step_seconds = seconds / max(4, len(stages.get("shards", [])))
    for turn in range(kills):
        name = f"killed-{turn}"
        place_of_kill = killed_run(place, name, stages, turn, generator, step_seconds)
        compare(expected, digests(place.work(name)), name)
        print(f"{name}: in {place_of_kill}, continued, all equal", flush=True)
        shutil.rmtree(place.work(name))
    for threads in (1, 2, 4):
        name = f"threads-{threads}"
        place.finish(place.pipeline(name, threads))
        compare(expected, digests(place.work(name)), name)
        print(f"{name}: all equal", flush=True)
        shutil.rmtree(place.work(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    arguments = parser.parse_args()
    for path in (MODEL / "model.safetensors", arguments.binary):
        if not path.exists():
            print(f"kill_and_resume: skipped, {path} is absent")
            return SKIPPED
    try:
        if arguments.keep:
            arguments.keep.mkdir(parents=True)
            run_all(Workplace(arguments.keep.resolve(), arguments.binary.resolve()), arguments.kills, arguments.seed)
        else:
            with tempfile.TemporaryDirectory(prefix="draftmill-kill-") as folder:
                run_all(Workplace(Path(folder), arguments.binary.resolve()), arguments.kills, arguments.seed)
    except CrashTestFailed as failure:
        print(f"kill_and_resume: FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
