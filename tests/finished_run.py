"""A finished run of a model of a few thousand weights, for tests of what reads work folders."""

import json
import os
import subprocess
from pathlib import Path

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
PIPELINE = """\
work: work
model: {path: model}
ingest: {sources: [{path: first.jsonl}, {path: second.jsonl}], chunk_rows: 16}
vocab_map: {size: 64}
extract: {device: cpu, batch_tokens: 256, block_tokens: 512}
write: {shard_bytes: 128KiB}
limits: {min_free_disk: 0, memory: 1GiB}
"""


def draftmill(*arguments, **options):
    """The finished process, with its output as text."""
    command = [str(BINARY), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)


def _rows(name, count):
    for i in range(count):
        answer = f"It is {name} {i + 1}." * (1 + i % 5)
        messages = [{"role": "user", "content": f"What is {name} {i}?"}, {"role": "assistant", "content": answer}]
        if i % 3 == 0:
            messages += [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": f"{i + 2}."}]
        yield json.dumps({"messages": messages}) + "\n"


def make_finished_run(folder):
    """The work folder of a run that was made in `folder`; DRAFTMILL_FINISHED_RUN names one to take instead."""
    if "DRAFTMILL_FINISHED_RUN" in os.environ:
        return Path(os.environ["DRAFTMILL_FINISHED_RUN"])
    make_byte_model(folder / "model")
    (folder / "first.jsonl").write_text("".join(_rows("first", 30)), encoding="utf-8")
    (folder / "second.jsonl").write_text("".join(_rows("second", 20)), encoding="utf-8")
    (folder / "pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
    finished = draftmill("run", folder / "pipeline.yaml")
    assert finished.returncode == 0, finished.stderr
    return folder / "work"
