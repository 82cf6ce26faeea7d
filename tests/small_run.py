"""A small run for tests of the whole program: a model whose tokens are bytes, rows, a pipeline file, and what it publishes."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED_FOLDERS = ("ingested", "corpus", "vocab", "shards")
COMPLETE = (0, 3)

# By default the last layer's states are not kept: a run that keeps them checks them against the head, and loading libtorch for
# that takes longer than all else of so small a run.
PIPELINE = """\
work: {work}
model: {{path: {model}}}
ingest: {{sources: [{{path: rows.jsonl}}], chunk_rows: {chunk_rows}, shuffle: {{seed: 3}}}}
vocab_map: {{size: 200}}
extract: {{layers: {layers}, batch_tokens: 512, block_tokens: 1024}}
write: {{shard_bytes: {shard_bytes}}}
limits: {{memory: 256MiB, threads: {threads}, min_free_disk: {min_free_disk}, disk_wait: {disk_wait}, max_bad_fraction: 0.5}}
"""


def hash_of(text):
    """Text of another length for each number."""
    digest = hashlib.sha256(str(text).encode()).hexdigest()
    return digest[: 8 + int(digest[0], 16)]


def conversation(number):
    """A row of its own for each number."""
    question, answer = f"question {number}", f"the answer to {number} is {hash_of(number)}"
    return json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})


class SmallRun:
    """A folder with rows.jsonl, model/ and pipeline.yaml; the work folder is `work`, beside them or anywhere.

    What a command prints goes to `log`, last.log in the folder where nothing else is said.
    """

    def __init__(self, folder, binary, lines, log=None, **values):
        self.folder = Path(folder)
        self.log = Path(log) if log else self.folder / "last.log"
        self.binary = Path(binary)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pipeline = self.folder / "pipeline.yaml"
        self.values = {"work": "work", "model": "model", "chunk_rows": 20, "shard_bytes": "64KiB", "threads": 2}
        self.values |= {"min_free_disk": 0, "disk_wait": "0s", "layers": "[1, 3, 5]"}
        if not (self.folder / "model").exists():
            make_byte_model(self.folder / "model")
        (self.folder / "rows.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        self.configure(**values)

    def copy(self, folder):
        """The same run in another folder, with its work folder as it lies there now."""
        shutil.copytree(self.folder, folder, symlinks=True)
        copy = SmallRun.__new__(SmallRun)
        copy.folder, copy.binary, copy.values = Path(folder), self.binary, dict(self.values)
        copy.pipeline = copy.folder / self.pipeline.name
        copy.log = copy.folder / "last.log"
        return copy

    def configure(self, **values):
        self.values |= values
        self.pipeline.write_text(PIPELINE.format(**self.values), encoding="utf-8")

    @property
    def work(self):
        return self.folder / self.values["work"]

    def start(self, *arguments, command="run", environment=None):
        """The process; its output goes to the log."""
        with open(self.log, "wb") as log:
            return subprocess.Popen(
                [self.binary, command, self.pipeline, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )

    def run(self, *arguments, command="run", environment=None, timeout=300):
        """The exit status."""
        return self.start(*arguments, command=command, environment=environment).wait(timeout=timeout)

    def words(self):
        """All that the last command printed: the longer it took, the more lines of progress."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def last_words(self):
        """The end of it, for messages."""
        return self.words()[-3000:]

    def published(self):
        """{path in the work folder: SHA-256} of every file that is published."""
        files = [path for name in PUBLISHED_FOLDERS for path in (self.work / name).rglob("*") if path.is_file()]
        files += [self.work / name for name in ("final_norm.safetensors", "manifest.json") if (self.work / name).exists()]
        return {str(path.relative_to(self.work)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def difference(expected, found):
    """The paths that two results of `published` do not share; empty where they are equal."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
