"""tools/parquet_to_jsonl.py: rows come out as they went in, in bounded memory, and a failure leaves nothing behind."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).resolve().parent.parent


def convert(*arguments):
    command = [sys.executable, ROOT / "tools" / "parquet_to_jsonl.py", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def write(path, rows, schema=None):
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
    return path


def read(path):
    compression = {".zst": "zstd", ".gz": "gzip"}.get(path.suffix)
    with pyarrow.input_stream(str(path), compression=compression) as stream:
        return [json.loads(line) for line in stream.read().decode().split("\n")[:-1]]


def conversation(number):
    call = [{"type": "function", "function": {"name": "rate", "arguments": '{"cur": "NOK"}'}}]
    user = {"role": "user", "content": f"frage {number} \U0001f680\u2028\n"}
    return {"id": number, "messages": [user, {"role": "assistant", "content": None, "tool_calls": call}]}


def test_rows_come_out_as_they_went_in_without_the_nulls_that_parquet_adds(tmp_path):
    rows = [conversation(number) for number in range(3000)]
    source = write(tmp_path / "chat.parquet", rows)
    done = convert(source)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/chat.jsonl.zst: 3000 rows\n"
    for row in rows:
        del row["messages"][1]["content"]
    assert read(tmp_path / "chat.jsonl.zst") == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chat.jsonl.zst", "chat.parquet"]


def test_nulls_can_be_kept_and_columns_chosen(tmp_path):
    source = write(tmp_path / "chat.parquet", [conversation(7)])
    assert convert(source, "--output", tmp_path / "a.jsonl", "--columns", "messages", "--keep-nulls").returncode == 0
    (row,) = read(tmp_path / "a.jsonl")
    assert list(row) == ["messages"]
    assert row["messages"][0] == {"content": "frage 7 \U0001f680\u2028\n", "role": "user", "tool_calls": None}
    assert row["messages"][1]["content"] is None


def test_several_files_become_one(tmp_path):
    sources = [write(tmp_path / f"{name}.parquet", [{"text": name}]) for name in "ab"]
    assert convert(*sources, "--output", tmp_path / "all.jsonl.gz").returncode == 0
    assert read(tmp_path / "all.jsonl.gz") == [{"text": "a"}, {"text": "b"}]


def test_types_without_a_json_form_of_their_own(tmp_path):
    schema = pyarrow.schema(
        [
            ("at", pyarrow.timestamp("s")),
            ("raw", pyarrow.binary()),
            ("score", pyarrow.float64()),
            ("tags", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        ]
    )
    row = {"at": datetime.datetime(2025, 3, 9, 7, 5, 3), "raw": "ä".encode(), "score": float("nan"), "tags": [("a", 1)]}
    source = write(tmp_path / "types.parquet", [row], schema)
    assert convert(source).returncode == 0
    assert read(tmp_path / "types.jsonl.zst") == [{"at": "2025-03-09T07:05:03", "raw": "ä", "tags": {"a": 1}}]


def test_what_cannot_be_converted_is_named_and_leaves_nothing(tmp_path):
    image = write(tmp_path / "image.parquet", [{"image": b"ok"}, {"image": b"\xff\xd8"}])
    done = convert(image)
    assert done.returncode == 1
    assert "image.parquet: row 1: image holds bytes that are no UTF-8 text" in done.stderr
    assert "was not written" in done.stderr
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 this is not Parquet PAR1")
    assert convert(broken).returncode == 1
    assert convert(tmp_path / "absent.parquet").returncode == 1
    done = convert(image, "--columns", "messages")
    assert (done.returncode, "no column messages; there are image" in done.stderr) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.parquet", "image.parquet"]


def test_an_existing_file_is_replaced_only_on_request(tmp_path):
    source = write(tmp_path / "chat.parquet", [{"text": "new"}])
    (tmp_path / "chat.jsonl.zst").write_bytes(b"old")
    assert convert(source).returncode == 2
    assert (tmp_path / "chat.jsonl.zst").read_bytes() == b"old"
    assert convert(source, "--output", tmp_path / "chat.txt").returncode == 2
    assert convert(source, "--force").returncode == 0
    assert read(tmp_path / "chat.jsonl.zst") == [{"text": "new"}]
