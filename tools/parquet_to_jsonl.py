#!/usr/bin/env python3
"""Converts Parquet files to lines of JSON that draftmill ingests.

    tools/parquet_to_jsonl.py data/train.parquet               # writes data/train.jsonl.zst
    tools/parquet_to_jsonl.py a.parquet b.parquet --output all.jsonl
    tools/parquet_to_jsonl.py data/*.parquet --columns messages tools

Needs pyarrow (tools/requirements-test.txt). Streams: memory holds a few hundred rows, whatever the size of a file. The
output is compressed where its name ends in .zst or .gz; it appears under its name only when it is complete, and an
existing file is not replaced without --force.

Parquet gives every row all columns and every message all fields; what a row does not have is null there. Nulls of columns
and of fields are therefore left out (--keep-nulls keeps them): a chat template can tell `tool_calls` that is null from
one that is absent. Exits 0 when all is written, 1 where a file cannot be converted, 2 for a wrong command line.
"""

import argparse
import datetime
import decimal
import json
import math
import os
import sys
import uuid
from pathlib import Path

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    sys.exit("parquet_to_jsonl.py needs pyarrow: python3 -m pip install pyarrow. Nothing was written")

ROWS_AT_ONCE = 512
COMPRESSIONS = {".zst": "zstd", ".gz": "gzip"}


class ConversionError(Exception):
    """Something in a file that has no place in JSON, for people."""


def as_json(value, place, keep_nulls):
    """A value of pyarrow's to_pylist as json.dumps takes it. `place` names it in messages: "messages.content"."""
    if isinstance(value, dict):
        members = ((str(name), as_json(member, f"{place}.{name}", keep_nulls)) for name, member in value.items())
        return {name: member for name, member in members if keep_nulls or member is not None}
    if isinstance(value, list):
        return [as_json(item, place, keep_nulls) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise ConversionError(f"{place} holds bytes that are no UTF-8 text; leave it out with --columns") from None
    if isinstance(value, (datetime.date, datetime.time)):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, (datetime.timedelta, decimal.Decimal, uuid.UUID)):
        return str(value)
    kind = type(value).__name__
    raise ConversionError(f"{place} holds {kind}, which JSON has no form for; leave it out with --columns")


def rows(path, columns, keep_nulls):
    """The rows of a file, one after the other, as objects for json.dumps."""
    with pyarrow.parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        absent = [name for name in columns or [] if name not in names]
        if absent:
            raise ConversionError(f"no column {', '.join(absent)}; there are {', '.join(names)}")
        number = 0
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                try:
                    yield as_row(row, keep_nulls)
                except ConversionError as error:
                    raise ConversionError(f"row {number}: {error}") from None
                number += 1


def as_row(row, keep_nulls):
    values = ((name, as_json(value, name, keep_nulls)) for name, value in row.items())
    return {name: value for name, value in values if keep_nulls or value is not None}


def convert(inputs, output, columns, keep_nulls):
    """Writes the rows of all inputs to one file; returns how many there are."""
    partial = output.with_name(output.name + ".partial")
    count = 0
    try:
        with partial.open("wb") as file:
            compression = COMPRESSIONS.get(output.suffix)
            stream = pyarrow.CompressedOutputStream(pyarrow.PythonFile(file, "w"), compression) if compression else file
            for path in inputs:
                try:
                    for row in rows(path, columns, keep_nulls):
                        stream.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
                        count += 1
                except (ConversionError, pyarrow.ArrowException, OSError, UnicodeEncodeError) as error:
                    raise ConversionError(f"{path}: {error}") from error
            if compression:
                stream.close()  # writes the end of the frame, and closes `file`
            else:
                file.flush()
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parquet", nargs="+", type=Path, help="Parquet files")
    parser.add_argument("--output", type=Path, help="one file for all rows, .jsonl or .jsonl.zst (default: each beside its input)")
    parser.add_argument("--columns", nargs="+", help="only these columns, e.g. messages tools")
    parser.add_argument("--keep-nulls", action="store_true", help="write fields that are null as null")
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    arguments = parser.parse_args()
    if arguments.output:  # noqa: SIM108 - two lines say it better
        jobs = [(arguments.parquet, arguments.output)]
    else:
        jobs = [([path], path.with_suffix(".jsonl.zst")) for path in arguments.parquet]
    for _, output in jobs:
        if ".jsonl" not in output.suffixes[-2:]:
            parser.error(f"{output}: the output must be named .jsonl, .jsonl.zst or .jsonl.gz")
        if output.exists() and not arguments.force:
            parser.error(f"{output} is there already; name another one with --output, or replace it with --force")
    for inputs, output in jobs:
        try:
            count = convert(inputs, output, arguments.columns, arguments.keep_nulls)
        except (ConversionError, OSError) as error:
            print(f"parquet_to_jsonl.py: {error}. {output} was not written", file=sys.stderr)
            return 1
        print(f"{output}: {count} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
