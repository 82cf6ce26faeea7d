#!/usr/bin/env python3
"""Feeds the GGUF reader files that are wrong in random ways: it must refuse them by name, or read them, in bounded time and memory.

    tests/gguf_fuzz.py [--seconds 600 | --files N] [--seed N]

Files are whole ones with bits flipped, pieces cut, repeated, moved or overwritten with numbers that parsers stumble over.
Prints how many were tried and what became of them. Exit: 0 nothing found, 1 a file that broke the reader, which is kept.
"""

import argparse
import collections
import random
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from gguf_reader import GgufError, GgufFile  # noqa: E402

MEMORY_BYTES = 2 << 30
SLOWEST_S = 20
NUMBERS = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, 1 << 61, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def whole_file():
    """One of each kind of value and of tensor, a few hundred bytes."""
    entries = [
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("count") + struct.pack("<IQ", 10, 7),
        text("scale") + struct.pack("<If", 6, 0.5),
        text("name") + struct.pack("<I", 8) + text("\u00e9t\u00e9"),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("numbers") + struct.pack("<IIQ3i", 9, 5, 3, 1, -2, 3),
    ]
    tensors, data = [], b""
    for name, kind, shape, size in (("f32", 0, (2, 3), 24), ("f16", 1, (8,), 16), ("q4", 3, (64,), 40), ("q8", 8, (32, 2), 68)):
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        tensors.append(text(name) + dimensions + struct.pack("<IQ", kind, len(data)))
        data += bytes(range(size)) + bytes(-size % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries + tensors)
    return head + bytes(-len(head) % 32) + data


def harm(content, generator):
    content = bytearray(content)
    for _ in range(generator.choice([1, 1, 1, 2, 4, 16])):
        at = generator.randrange(len(content) + 1)
        length = generator.choice([1, 4, 8, generator.randrange(1, 64)])
        kind = generator.randrange(6)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            width = generator.choice([1, 2, 4, 8])
            content[at : at + width] = (generator.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 2:
            del content[at : at + length]
        elif kind == 3:
            content[at:at] = content[at : at + length]
        elif kind == 4:
            to = generator.randrange(len(content) + 1)
            content[to : to + length] = content[at : at + length]
        else:
            content[at : at + length] = generator.randbytes(length)
    return bytes(content[: generator.randrange(len(content) + 1)] if generator.random() < 0.1 else content)


def read(path):
    """What became of the file."""
    try:
        with GgufFile(path) as sample:
            for name in sample.tensors:
                sample.tensor(name)
    except GgufError:
        return "refused"
    return "read"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--files", type=int, help="so many files, however long it takes")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    np.seterr(all="ignore")
    generator = random.Random(arguments.seed)
    whole, kept, became = whole_file(), [], collections.Counter()
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="draftmill-gguf-") as folder:
        path = Path(folder) / "a.gguf"
        path.write_bytes(whole)
        if read(path) != "read":
            sys.exit("the file that all others are made from is refused")
        while sum(became.values()) < arguments.files if arguments.files else time.monotonic() < end:
            content = harm(generator.choice([whole, *kept]), generator)
            path.write_bytes(content)
            started = time.monotonic()
            try:
                outcome = read(path)
                if time.monotonic() - started > SLOWEST_S:
                    raise TimeoutError(f"took more than {SLOWEST_S} s")
            except Exception as error:  # whatever it is, it is what is looked for
                found = Path(tempfile.gettempdir()) / f"gguf-fuzz-{arguments.seed}.gguf"
                found.write_bytes(content)
                print(f"seed {arguments.seed}: {type(error).__name__}: {error}: {found}")
                return 1
            became[outcome] += 1
            # What is still read is a beginning for further harm.
            if outcome == "read" and content and len(kept) < 1000:
                kept.append(content)
    print(f"seed {arguments.seed}: {sum(became.values()):,} files, {became['refused']:,} refused, {became['read']:,} read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
