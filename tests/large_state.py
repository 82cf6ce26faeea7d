#!/usr/bin/env python3
"""How long questions and a start take with a state.db of very many samples.

    tests/large_state.py [--samples 10000000] [--binary build/draftmill_example] [--folder FOLDER]

Runs a chunk of 4,000 rows once, then repeats what the database says of it, and the published files as empty ones of the
right sizes, until there are so many samples. The last chunk is not extracted yet, so that a run has something to resume.
Prints the times of `status`, of `why` for samples and a stage, and of a start up to the line that says what is resumed,
each the median of five, and the bytes per sample. Exit: 0 all within the limits, 1 not.
"""

import argparse
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from small_run import COMPLETE, ROOT, SmallRun, conversation

ROWS_PER_CHUNK = 4000
UNFINISHED = 75
REPEATS = 5
LIMITS_S = {"status": 0.2, "why SAMPLE": 1.0, "why STAGE": 1.0, "resume decision": 5.0}
# How a row of the first chunk becomes one of chunk :k; columns that are not named stay as they are.
REPEATED = {
    "conversations": {"sample_id": "sample_id + :k * :rows", "chunk": ":k"},
    "samples": {"sample_id": "sample_id + :k * :rows", "chunk": ":k"},
    "plans": {"chunk": ":k"},
    "batches": {"chunk": ":k"},
    "shards": {"chunk": ":k", "file": "printf('shards/%06d/c%06d-s%03d.safetensors', :k, :k, shard)"},
    "chunks": {"chunk": ":k", "first_sample": ":k * :rows"},
}


def repeat_rows(database, chunks):
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for table, changed in REPEATED.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(changed.get(column, column) for column in columns)
            # Not from the table itself: no index leads to a chunk's rows, so that each repetition would read all before it.
            connection.execute(f"CREATE TEMP TABLE first_{table} AS SELECT * FROM {table} WHERE chunk = 0")
            for k in range(1, chunks):
                arguments = {"k": k, "rows": ROWS_PER_CHUNK} if ":rows" in values else {"k": k}
                connection.execute(f"INSERT INTO {table} SELECT {values} FROM first_{table}", arguments)
        last = chunks - 1
        connection.execute("UPDATE shards SET state = 'planned', file = '', bytes = 0, digest = '' WHERE chunk = ?", [last])
        connection.execute("UPDATE batches SET state = 'planned', digest = '' WHERE chunk = ?", [last])
        counters = ("extracted_batches", "extracted_samples", "extracted_tokens", "extracted_bytes")
        counters += ("published_shards", "published_samples", "published_tokens", "published_bytes", "quarantined")
        connection.execute(f"UPDATE chunks SET {', '.join(name + ' = 0' for name in counters)} WHERE chunk = ?", [last])
        connection.execute("UPDATE stages SET state = 'running' WHERE stage IN ('extract', 'write')")
    files = list(connection.execute("SELECT file, bytes FROM shards WHERE state = 'published'"))
    files += [(f"corpus/chunk-{chunk:06}.safetensors", size) for chunk, size in connection.execute("SELECT chunk, corpus_bytes FROM chunks")]
    connection.close()
    return files


def make_files(work, files):
    for name, size in files:
        path = work / name
        if path.exists():
            continue
        path.parent.mkdir(exist_ok=True)
        with open(path, "wb") as file:
            file.truncate(size)


def median_s(action):
    times = []
    for _ in range(REPEATS):
        started = time.monotonic()
        action()
        times.append(time.monotonic() - started)
    return statistics.median(times)


def resume(run):
    """Starts a run and ends it as soon as it says what it resumes."""
    process = subprocess.Popen([run.binary, "run", run.pipeline], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("resuming"):
            break
    else:
        sys.exit("the run did not resume:\n" + "".join(lines))
    process.kill()
    process.wait()


def measure(run, chunks):
    samples = chunks * ROWS_PER_CHUNK

    def ask(*arguments):
        status = subprocess.run([run.binary, *arguments], check=False, stdout=subprocess.DEVNULL).returncode
        if status not in (*COMPLETE, UNFINISHED):
            sys.exit(f"{arguments[0]} ended with {status}")

    # The first start brings the database into the form that a run works with.
    resume(run)
    return {
        "status": median_s(lambda: ask("status", run.pipeline)),
        "why SAMPLE": max(median_s(lambda at=at: ask("why", run.pipeline, str(at))) for at in (0, samples // 2, samples - 1)),
        "why STAGE": median_s(lambda: ask("why", run.pipeline, "extract")),
        "resume decision": median_s(lambda: resume(run)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill_example")
    parser.add_argument("--folder", type=Path, help="work below this folder instead of the temporary one")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="draftmill-large-", dir=arguments.folder))
    try:
        run = SmallRun(folder, arguments.binary, [conversation(number) for number in range(ROWS_PER_CHUNK)], chunk_rows=ROWS_PER_CHUNK, shard_bytes="8MiB")
        if run.run() not in COMPLETE:
            sys.exit(run.last_words())
        (run.work / "manifest.json").unlink()
        chunks = arguments.samples // ROWS_PER_CHUNK
        make_files(run.work, repeat_rows(run.work / "state.db", chunks))
        size = (run.work / "state.db").stat().st_size
        times = measure(run, chunks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"large state: {chunks * ROWS_PER_CHUNK:,} samples, {size:,} bytes, {size / (chunks * ROWS_PER_CHUNK):.1f} bytes a sample")
    for name, seconds in times.items():
        print(f"  {name}: {seconds:.3f} s (limit {LIMITS_S[name]} s)")
    return 1 if any(seconds > LIMITS_S[name] for name, seconds in times.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
